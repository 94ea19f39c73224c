"""Costs measured on the real ops predict the real allocator, to the byte, in orders that were never run before."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from models import torch_models
from models.orders import random_order
from schedopt import Problem, ProgramError, Schedule
from schedopt.core.files.costgraph import structure_hash
from schedopt.core.model.allocators import MIB, Allocator
from schedopt.core.model.reserved import Requests
from schedopt.core.model.simulator import simulate
from schedopt.core.programs.pytorch.importer import graph_of
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import held_bytes, measured_costs, peak_of, reorder, trace_cpu_allocator
from torch import nn


@pytest.fixture(autouse=True)
def one_thread():
    """Let no worker thread allocate: the profiler sees this one alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def predicted(graph, order):
    return simulate(Problem(graph), Schedule.single_device(np.array(order))).peak


def measured(program, graph, order):
    """Return the bytes that the program's arguments and the allocator held, without arguments that nobody reads."""
    module, arguments = reorder(program, graph, order), copy.deepcopy(program.arguments)
    with torch.set_grad_enabled(program.training != "none"):
        _, peak = peak_of(lambda: module(*arguments), "cpu")
    return peak + int(graph.persistent.sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "training"),
    [
        ("branches", "none"),
        ("branches_in_training", "none"),
        ("branches_in_training", "sgd"),
        ("attention", "adam"),
        ("recurrent", "sgd"),
        ("convolutions", "sgd"),
    ],
)
def test_the_real_peak_is_the_predicted_one(model, training):
    program = program_of(*getattr(torch_models, model)(), training)
    graph = graph_of(program, measured=measured_costs(program))
    without = dataclasses.replace(graph, workspace=np.zeros_like(graph.workspace))
    orders = [graph.input_order.tolist(), *(random_order(graph, seed) for seed in range(3))]
    peaks = [measured(program, graph, order) for order in orders]
    assert peaks == [predicted(graph, order) for order in orders]
    if model.startswith("branches"):
        assert max(peaks) > min(peaks)

    if model == "convolutions":
        assert peaks != [predicted(without, order) for order in orders], "the workspace tells nothing"


@pytest.mark.slow
def test_a_node_that_fails_is_named():
    program = program_of(*torch_models.linear())
    wrong = (torch.ones(5, 5), *program.arguments[1:])
    with pytest.raises(ProgramError, match=r"^Linear: node 'addmm' \(aten\.addmm\.default\) fails when run: [^\n]+$"):
        measured_costs(dataclasses.replace(program, arguments=wrong))


def test_a_trace_holds_the_bytes_at_their_worst_and_at_the_end():
    with trace_cpu_allocator() as trace:
        kept = torch.empty(1000, dtype=torch.uint8)
        with torch.profiler.record_function("within"):
            for size in (300, 200):
                torch.empty(size, dtype=torch.uint8)
            more = torch.empty(50, dtype=torch.uint8)
        del kept
    assert trace.peak_and_rest("within") == (300, 50)
    assert trace.peak_and_rest("within", 200) == (200, 50)
    assert trace.peak_and_rest() == (1300, 50)
    assert more.numel() == 50


def test_workspace_in_small_blocks_is_not_one_large_one():
    program = program_of(nn.ReLU(), torch.ones(4))
    graph = graph_of(program, measured={"relu": (1.0, 7 * MIB // 2, 5 * MIB // 2)})
    assert (graph.tensor_size[1:].tolist(), graph.workspace.tolist()) == ([MIB, MIB, MIB // 2], [MIB])
    assert Requests(graph, Allocator()).sizes.max() == MIB
    assert graph_of(program, measured={"relu": (1.0, MIB, MIB)}).workspace.tolist() == [MIB]


@pytest.mark.slow
def test_a_graph_has_the_same_tensors_whatever_was_measured():
    program = program_of(nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)), torch.ones(4, 8, 96, 96))
    small = [small for _, _, small in measured_costs(program, apart=True).values()]
    assert max(small) > 0
    assert structure_hash(graph_of(program, measured=measured_costs(program))) == structure_hash(graph_of(program))


def test_shared_memory_is_held_once():
    base = torch.zeros(10)
    assert held_bytes([base, base[2:], torch.zeros(3), "text"]) == 52
    assert held_bytes([base], "cuda") == 0
