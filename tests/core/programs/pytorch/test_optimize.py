"""`schedopt.optimize`: same results, less memory."""

import copy

import pytest
import schedopt
import torch
import torch_models
from schedopt.core.errors import UsageError
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import held_bytes
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves


def test_optimize_returns_the_model_with_a_lower_peak():
    model, inputs = torch_models.branches()
    expected = copy.deepcopy(model)
    program = program_of(copy.deepcopy(model), inputs)
    better = schedopt.optimize(model, inputs, time_limit=1, method="lpmf")
    with torch.no_grad():
        found, peak = peak_of(lambda: better(*inputs), "cpu")
        _, before = peak_of(lambda: program.module(*program.arguments), "cpu")
        one, structure = tree_flatten(expected(*inputs))
    other, other_structure = tree_flatten(found)
    assert structure == other_structure
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert peak < 0.7 * before
    assert torch.equal(model.calls, expected.calls), "the model's own buffers are updated, once"
    assert held_bytes([*model.state_dict().values(), *better.state_dict().values()]) == held_bytes(
        model.state_dict().values()
    )


def test_optimize_returns_a_training_step():
    (model, inputs), (twin, _) = torch_models.branches_in_training(), torch_models.branches_in_training()
    step = optimize(model, inputs, training="sgd", method="lpmf")
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))
    program = program_of(twin, inputs, "sgd")
    for seed in range(2):
        torch.manual_seed(seed)
        loss = step(*inputs)
        torch.manual_seed(seed)
        assert torch.equal(loss, tree_leaves(program.module(*program.arguments))[0])
    for (name, one), other in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    other_images = [torch.randn_like(value) for value in inputs]
    assert not torch.equal(step(*other_images), loss)


class Difference(nn.Module):
    """Two inputs of the same shape, and a flag, all of which may be given by position or keyword."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(8.0))

    def forward(self, more, less, *, scale=2, pair=None):
        return ((self.weight * more).sum() - scale * (self.weight * less).sum()) * (pair or [1.0])[0]


@pytest.mark.parametrize("example", [lambda a, b: (a, b), lambda a, b: {"less": b, "more": a}])
def test_a_training_step_is_called_as_its_model_is(example):
    more, less = torch.rand(2, 8)
    for args, kwargs in [((more, less), {}), ((more,), {"less": less}), ((), {"less": less, "more": more, "scale": 2})]:
        model = Difference()
        expected = model(more, less)
        step = optimize(model, example(torch.zeros(8), torch.ones(8)), training="sgd", method="lpmf")
        assert torch.allclose(step(*args, **kwargs), expected)
        assert torch.allclose(model.weight, torch.arange(8.0) - 0.01 * (more - 2 * less))


def test_a_training_step_refuses_inputs_that_it_was_not_made_for():
    model, ones = Difference(), torch.ones(8)
    step = optimize(model, (ones, ones), training="adam", method="lpmf")
    cases = [
        (
            (ones, torch.ones(1)),
            {},
            UsageError,
            r"^input 'less' is .* shape \(1,\), .*made for .* shape \(8,\)",
        ),
        ((ones.double(), ones), {}, UsageError, "^input 'more' is .*float64, .*float32"),
        ((ones, 3), {}, UsageError, "^input 'less' is 3; "),
        ((ones, ones), {"scale": 3}, UsageError, "^input 'scale' is 3; the step was made for 2"),
        ((ones, (ones, ones)), {}, UsageError, "^input 'less' is "),
        ((ones,), {}, TypeError, "'less'"),
        ((ones, ones, ones), {}, TypeError, "positional"),
    ]
    for args, kwargs, kind, message in cases:
        with pytest.raises(kind, match=message):
            step(*args, **kwargs)
    assert torch.equal(model.weight, Difference().weight), "nothing was updated"


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, pair, **more):
        return (self.weight * pair[0] * more["last"]).sum() + pair[1].sum()


def test_a_training_step_takes_nested_inputs():
    model, (one, two, last) = Nested(), torch.rand(3, 3)
    zeros = torch.zeros(3)
    step = optimize(model, {"last": zeros, "pair": [zeros, zeros]}, training="sgd", method="lpmf")
    expected = model([one, two], last=last)
    assert torch.allclose(step([one, two], last=last), expected)
    with pytest.raises(UsageError, match=r"^input 'pair\[1\]' is a tensor of shape \(1,\)"):
        step([one, torch.ones(1)], last=last)
    with pytest.raises(UsageError, match="nested otherwise"):
        step([one], last=last)


@pytest.mark.parametrize(
    ("model", "kwargs", "message"),
    [
        (42, {}, "a model is a PyTorch module, not int"),
        (nn.Linear(4, 4), {"time_limit": "5 parsecs"}, "time limit '5 parsecs' has an unknown unit"),
        (nn.Linear(4, 4), {"time_limit": 0}, "time limit must be more than 0"),
    ],
)
def test_what_optimize_cannot_take_is_refused(model, kwargs, message):
    with pytest.raises(UsageError, match=message):
        optimize(model, torch.ones(2, 4), **kwargs)
