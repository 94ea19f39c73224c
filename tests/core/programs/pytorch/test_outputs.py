"""Models that return dataclasses, and types of which PyTorch knows no tensors."""

import dataclasses

import pytest
import schedopt
import torch
from schedopt import ProgramError
from schedopt.core.programs.pytorch.program import program_of
from torch import nn


@dataclasses.dataclass
class Inner:
    low: torch.Tensor
    high: torch.Tensor


@dataclasses.dataclass
class Output:
    scores: torch.Tensor
    parts: Inner
    name: str = "output"


class SomeCache:
    def __init__(self, tensor):
        self.tensor = tensor


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Linear(4, 4), kind

    def forward(self, x):
        y = self.layer(x)
        if self.kind == "dataclass":
            return Output(y.relu(), Inner(y - 1, y + 1))
        return {"loss": y.square().mean(), "cache": SomeCache(y) if self.kind == "cache" else iter([y])}


@pytest.mark.slow
def test_tensors_of_dataclasses_are_results():
    model, x = Model("dataclass").eval(), torch.ones(2, 4)
    graph = schedopt.import_model(model, x)
    assert graph.is_final.sum() == 3
    with torch.no_grad():
        expected, found = model(x), schedopt.optimize(model, x, evaluations=10)(x)
    assert isinstance(found, Output)
    assert isinstance(found.parts, Inner)
    assert torch.equal(found.scores, expected.scores)
    assert torch.equal(found.parts.high, expected.parts.high)


def test_the_loss_of_a_dataclass_is_the_sum_of_the_means_of_its_tensors():
    model, x, notes = Model("dataclass"), torch.ones(2, 4), []
    program = program_of(model, x, "sgd", note=notes.append)
    y = model(x)
    expected = y.scores.mean() + y.parts.low.mean() + y.parts.high.mean()
    assert torch.equal(program.module(*program.arguments), expected)
    assert notes == ["Model: the loss is the sum of the means of 3 outputs"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cache", "the model returns a SomeCache, whose tensors PyTorch does not know; call it with use_cache=False"),
        ("iterator", "the model returns a list_iterator, .* by torch.utils._pytree.register_pytree_node"),
    ],
)
def test_other_types_are_refused_with_the_remedy(kind, message):
    with pytest.raises(ProgramError, match=message):
        schedopt.import_model(Model(kind).eval(), torch.ones(2, 4))


def test_what_is_beside_the_loss_does_not_matter_in_training():
    graph = schedopt.import_model(Model("cache"), torch.ones(2, 4), training="sgd")
    assert graph.num_ops > 0
