"""What trainers share: turns of given examples, and evolution strategies."""

import itertools

import numpy as np
import pytest
import torch
from schedopt.core.base.parallel import chunks
from schedopt.policies.training.phases import centred_ranks, directions, estimated_gradient, given_batches


def fitness_of(function, at, drawn, sigma):
    return np.array([[float(function(at + sign * sigma * row)) for row in drawn] for sign in (1, -1)])


@pytest.mark.slow
def test_the_estimate_agrees_with_finite_differences_on_a_quadratic():
    """Opposite perturbations cancel what is even, so on a quadratic only the sampling of directions errs."""
    rng = np.random.default_rng(0)
    curvature = torch.from_numpy(rng.standard_normal((5, 5)))
    slope, at = (torch.from_numpy(rng.standard_normal(5)) for _ in range(2))

    def quadratic(x):
        return -(x @ curvature @ x) + slope @ x

    steps = 1e-5 * torch.eye(5, dtype=torch.float64)
    differences = torch.stack([(quadratic(at + step) - quadratic(at - step)) / 2e-5 for step in steps])
    pairs, sigma = 20_000, 0.5
    drawn = directions(pairs, 5, rng).double()
    terms = (drawn @ differences)[:, None] * drawn
    found = estimated_gradient(fitness_of(quadratic, at, drawn, sigma), drawn, sigma)
    torch.testing.assert_close(found, terms.mean(0))  # exactly what the linear part gives for these directions
    assert ((found - differences).abs() <= 4 * terms.std(0) / pairs**0.5).all()
    assert differences.abs().min() > 8 * (terms.std(0) / pairs**0.5).max()


def test_one_direction_gives_the_slope_along_it():
    drawn = torch.tensor([[3.0, 0.0, 4.0]])
    found = estimated_gradient(fitness_of(lambda x: x.sum(), torch.zeros(3), drawn, 0.1), drawn, 0.1)
    torch.testing.assert_close(found, 7.0 * drawn[0])


def test_ranks_keep_the_order_and_nothing_else():
    fitness = np.array([[3.0, -1.0], [1e9, 3.0]])
    np.testing.assert_allclose(centred_ranks(fitness), [[0.0, -0.5], [0.5, 0.0]])
    np.testing.assert_allclose(centred_ranks(np.zeros((2, 3))), 0)
    rng = np.random.default_rng(1)
    values = rng.standard_normal((2, 8))
    np.testing.assert_allclose(centred_ranks(values), centred_ranks(np.exp(3 * values)))
    assert centred_ranks(values).sum() == pytest.approx(0)


def test_each_turn_takes_every_given_example_once_in_another_order():
    examples = [10, 11, 12, 13, 14]

    def turns(epoch, first=0):
        return list(itertools.chain(*given_batches(examples, 0, epoch, chunks(12, 4)[first:])))

    epoch = turns(0)
    assert [len(batch) for batch in given_batches(examples, 0, 0, chunks(12, 4))] == [4, 4, 4]
    assert sorted(epoch[:5]) == sorted(epoch[5:10]) == examples
    assert len(set(epoch[10:])) == 2
    assert epoch[:5] != epoch[5:10] != turns(1)[:5] != epoch[:5]
    assert turns(0, first=1) == epoch[4:]
