"""`schedopt.optimize`: same results, less memory."""

import copy

import pytest
import schedopt
import torch
from models import torch_models
from schedopt import UsageError, optimize
from schedopt.core.programs.pytorch.allocator import peak_of
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


@pytest.mark.parametrize(
    ("model", "kwargs", "message"),
    [
        (42, {}, "what is optimized is a PyTorch module, or a function that does a training step, not int"),
        (nn.Linear(4, 4), {"time_limit": "5 parsecs"}, "time limit '5 parsecs' has an unknown unit"),
        (nn.Linear(4, 4), {"time_limit": 0}, "time limit must be more than 0"),
    ],
)
def test_what_optimize_cannot_take_is_refused(model, kwargs, message):
    with pytest.raises(UsageError, match=message):
        optimize(model, torch.ones(2, 4), **kwargs)
