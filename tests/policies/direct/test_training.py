"""Training of `direct`: what its losses push, and runs that end and go on."""

import dataclasses

import numpy as np
import pytest
import torch
from schedopt import UsageError, solve
from schedopt.core.bounds.bounds import possible_times
from schedopt.datasets.synthetic import SyntheticParameters
from schedopt.policies.direct.keys import NODE_FEATURES, values_of
from schedopt.policies.direct.network import DirectNetwork, DirectNetworkParameters, batch_of
from schedopt.policies.direct.solve import Parameters
from schedopt.policies.direct.training import (
    HELD_OUT,
    Phase,
    Trainer,
    TrainingParameters,
    advantages,
    make_cases,
    ranking_loss,
)
from schedopt.policies.training.run_folder import curve_of

TINY = TrainingParameters(
    network=DirectNetworkParameters(width=4, rounds=1, noise="gumbel"),
    phases=(
        Phase(epochs=1, steps=2, graphs=2, imitation=1.0),
        Phase(epochs=1, steps=2, graphs=2, imitation=0.0, reinforce=1.0, samples=2),
        Phase(epochs=1, steps=2, graphs=2, imitation=0.0, evolution=1.0, pairs=2),
    ),
    synthetic=SyntheticParameters(nodes_low=8, nodes_high=12),
    training_graphs=4,
    validation_graphs=2,
    teacher_evaluations=4,
    teacher="brkga",
)


def test_cases_have_devices_and_links_of_their_own_and_none_is_held_out():
    parameters = dataclasses.replace(TINY, paid=0.5)
    cases, held_out = (make_cases(parameters, first, 24, (), 1) for first in (0, HELD_OUT))
    assert {case.problem.devices for case in cases} == {2, 3, 4, 8}
    assert {case.seen.transfers_take_time for case in cases} == {True, False}
    assert {case.problem.latency > 0 for case in cases if case.seen.transfers_take_time} == {True, False}
    tensors = [{tuple(case.problem.graph.tensor_size.tolist()) for case in some} for some in (cases, held_out)]
    assert not tensors[0] & tensors[1]
    free = make_cases(dataclasses.replace(TINY, network=DirectNetworkParameters("memory", noise="gumbel")), 0, 8, (), 1)
    assert not any(case.seen.transfers_take_time for case in free)


def test_links_are_those_of_the_settings_or_drawn():
    given = dataclasses.replace(TINY, paid=1.0, bandwidth=1e6, latency=2.0, devices=(2,))
    problems = [case.problem for case in make_cases(given, 0, 4, (), 1)]
    assert {(problem.bandwidth, problem.latency) for problem in problems} == {(1e6, 2.0)}
    drawn = make_cases(dataclasses.replace(TINY, paid=1.0), 0, 4, (), 1)
    assert len({case.problem.bandwidth for case in drawn}) == 4


@pytest.mark.slow
def test_imitation_makes_keys_fall_along_the_order():
    """An order against the rule's is learned: from all pairs in the wrong order to none."""
    (case,) = make_cases(dataclasses.replace(TINY, devices=(2,), paid=0.0), 0, 1, (), 1)
    place = np.argsort(np.argsort(case.seen.rule[:-1], kind="stable"))
    network = DirectNetwork(DirectNetworkParameters(width=16, rounds=1))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    rng, losses = np.random.default_rng(0), []
    for _ in range(60):
        loss = ranking_loss(network(batch_of([case.seen])), [place], rng)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 3


def test_samples_are_weighed_against_the_others_of_their_graph():
    found = advantages(np.array([[1.0, 1.0, 4.0], [5.0, 5.0, 5.0], [10.0, 10.0, 40.0]]))
    assert found[0, 0] == found[0, 1] < 0 < found[0, 2]
    assert (found[1] == 0).all()
    np.testing.assert_allclose(found[0], found[2])
    assert np.mean(found[0] ** 2) == pytest.approx(1)


def test_ops_run_on_one_type_of_device_where_types_are_set():
    equal = make_cases(dataclasses.replace(TINY, paid=0.0), 0, 1, (), 1)[0].problem
    for case in typed_cases(TINY):
        able = possible_times(case.problem)
        assert {tuple(row) for row in np.isfinite(able).tolist()} == {(True, False, False), (False, True, True)}
        assert len(np.unique(case.seen.nodes[:, NODE_FEATURES])) == 2
        value = values_of(case.problem, case.seen.rule[None])[0]
        assert value == pytest.approx(solve(case.problem, "direct:decode=rule").value)
        files = [Parameters(weights=name).file(problem).stem for name, problem in (("", case.problem), ("", equal))]
        assert files == ["direct-runtime-types", "direct-runtime"]


def typed_cases(parameters):
    return make_cases(dataclasses.replace(parameters, types=(1, 2)), 0, 4, (), 1)


@pytest.mark.slow
def test_reinforce_makes_draws_better(tmp_path):
    phase = Phase(epochs=2, steps=12, graphs=4, imitation=0.0, reinforce=1.0, samples=32, learning_rate=0.01)
    network = DirectNetworkParameters(width=8, rounds=1, links=True, noise="gumbel")
    parameters = dataclasses.replace(TINY, network=network, phases=(phase,), validation_graphs=1)
    assert Trainer(tmp_path, parameters, typed_cases(parameters)).run()
    gaps = [line["sampled_gap_percent"] for line in curve_of(tmp_path)[1:]]
    assert gaps[1] < gaps[0]


def test_reinforce_needs_noise_whose_orders_have_a_probability():
    with pytest.raises(UsageError, match=r"reinforce needs network\.noise=gumbel"):
        dataclasses.replace(TINY, network=DirectNetworkParameters())


def test_imitation_without_a_teacher_is_refused(tmp_path):
    with pytest.raises(UsageError, match="imitation needs the orders of a teacher"):
        Trainer(tmp_path, TINY, make_cases(TINY, 0, 1, (), 1))
