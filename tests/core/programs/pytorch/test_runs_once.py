"""Which ops of a PyTorch program may not be computed again."""

import schedopt
import torch
from torch import nn


def once(graph):
    return {name for name, runs_once in zip(graph.op_names, graph.runs_once, strict=True) if runs_once}


def test_updates_run_once_and_the_forward_pass_may_run_again():
    graph = schedopt.import_model(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.ones(2, 4), training="sgd")
    phases = dict(zip(graph.op_names, graph.annotations.phases, strict=True))
    assert {phases[name] for name in once(graph)} == {"update"}


def test_ops_of_others_run_once():
    @torch.library.custom_op("schedopt_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)

    class Model(nn.Module):
        def forward(self, x):
            return twice(x).relu()

    assert once(schedopt.import_model(Model().eval(), torch.ones(4))) == {"twice"}
