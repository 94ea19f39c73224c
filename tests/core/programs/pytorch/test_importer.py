"""PyTorch programs as graphs: any order that the graph allows gives the same bits, and holds the bytes predicted."""

from operator import getitem

import numpy as np
import pytest
import schedopt
import torch
from models.orders import random_order
from models.seeds import mostly_slow, seeds
from models.torch_programs import MODELS, Run, build, op_of, same_bits
from schedopt import Problem, ProgramError, Schedule
from schedopt.core.model.simulator import simulate
from schedopt.core.programs.options import Roofline
from schedopt.core.programs.pytorch.importer import Import, graph_of
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.tracing import TorchProgram
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

ORDERS = 6
WITH_A_SIBLING = {"normed-sgd", "language-sgd", "recurrent"}
"""Models of which another kind of program is among the quick ones."""


@pytest.fixture(scope="module", params=mostly_slow(MODELS, set(MODELS) - WITH_A_SIBLING))
def imported(request):
    model, inputs, training = build(request.param)
    program = program_of(model, inputs, training)
    return program, graph_of(program)


@pytest.fixture(scope="module")
def in_program_order(imported):
    program, graph = imported
    return Run(program, graph.op_names)


@pytest.mark.slow
def test_ops_are_the_calls_in_program_order(imported):
    program, graph = imported
    calls = [node.name for node in program.module.graph.find_nodes(op="call_function", target=getitem)]
    nodes = [node.name for node in program.module.graph.nodes if node.op == "call_function" and node.name not in calls]
    assert list(graph.op_names) == nodes
    assert graph.input_order.tolist() == list(range(len(nodes)))


@pytest.mark.parametrize("seed", seeds(ORDERS, quick=3))
def test_any_order_gives_the_same_bits_and_holds_the_bytes_predicted(imported, in_program_order, seed):
    program, graph = imported
    order = random_order(graph, seed)
    run = Run(program, [graph.op_names[op] for op in order])
    assert same_bits(run.results, in_program_order.results)
    assert same_bits(run.arguments, in_program_order.arguments)
    predicted = simulate(Problem(graph), Schedule.single_device(np.array(order))).step_memory
    assert (predicted - graph.persistent.sum()).tolist() == run.memory


def test_persistent_bytes_are_the_arguments_read_each_storage_once(imported):
    program, graph = imported
    read_arguments = [
        argument
        for node, argument in zip(program.module.graph.find_nodes(op="placeholder"), program.arguments, strict=True)
        if any(user.op == "call_function" for user in node.users)
    ]
    storages = {a.untyped_storage().data_ptr(): a.untyped_storage().nbytes() for a in read_arguments}
    assert graph.persistent.sum() == sum(storages.values())


class Plain(nn.Module):
    """No in-place op, nothing random."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 2)

    def forward(self, x):
        return self.second(self.first(x).relu().view(-1, 6)).sum(0)


def plain(training="none"):
    return program_of(Plain(), (torch.randn(3, 4),), training)


@pytest.mark.slow
def test_nothing_waits_but_for_data_without_a_reason():
    assert not graph_of(plain()).is_control.any()
    evaluated, inputs, _ = build("language")
    assert not graph_of(program_of(evaluated.eval(), inputs)).is_control.any()


def test_updates_wait_for_their_gradient_and_the_last_reader_alone():
    program = plain("sgd")
    graph = graph_of(program)
    update = {
        node.args[0].name: node
        for node in program.module.graph.nodes
        if node.name.startswith("add_") and node.op != "output"
    }
    assert update.keys() == {"p_first_weight", "p_first_bias", "p_second_weight", "p_second_bias"}
    before = ancestors(graph, update["p_second_bias"].name)
    assert op_of(update["p_second_bias"].args[1]).name in before
    assert op_of(update["p_first_weight"].args[1]).name not in before
    assert {"addmm", "addmm_1"} <= ancestors(graph, update["p_second_weight"].name)
    assert "mm" in ancestors(graph, update["p_second_weight"].name)  # the backward of the first layer reads the weight


def ancestors(graph, name):
    pointers, predecessors = graph.predecessors
    found, waiting = set(), [graph.op_names.index(name)]
    while waiting:
        op = waiting.pop()
        for before in set(predecessors[pointers[op] : pointers[op + 1]].tolist()) - found:
            found.add(before)
            waiting.append(before)
    return {graph.op_names[op] for op in found}


@pytest.mark.slow
def test_roofline_by_hand():
    graph = graph_of(plain(), Roofline(flops=1e6, memory_bandwidth=1e12))
    runtime = dict(zip(graph.op_names, graph.runtime.tolist(), strict=True))
    assert runtime["addmm"] == 2 * 3 * 4 * 6  # microseconds at one FLOP each
    assert runtime["relu"] == 3 * 6
    assert runtime["t"] == runtime["view"] == 0
    graph = graph_of(plain(), Roofline(flops=1e18, memory_bandwidth=1e6))
    runtime = dict(zip(graph.op_names, graph.runtime.tolist(), strict=True))
    assert runtime["addmm"] == 4 * (6 + 3 * 4 + 4 * 6 + 3 * 6)
    assert runtime["relu"] == 4 * (3 * 6 + 3 * 6)


@pytest.mark.slow
def test_attention_counts_its_matrix_products():
    model, inputs, _ = build("language")
    graph = graph_of(program_of(model.eval(), inputs), Roofline(1e6, 1e18))
    attention = graph.op_names.index("_scaled_dot_product_flash_attention_for_cpu")
    assert graph.runtime[attention] == 2 * (2 * 2 * 5 * 5 * 4) * 2  # 2 products, batch x heads x tokens^2 x width


def test_reading_an_expanded_tensor_moves_what_it_has():
    class Expanded(nn.Module):
        def forward(self, x):
            return x.expand(1000, 4) + 1

    graph = graph_of(program_of(Expanded(), (torch.randn(4),)), Roofline(1e18, 1e6))
    assert graph.runtime[graph.op_names.index("add")] == pytest.approx(16 + 16000)


def test_unread_arguments_are_noted_and_not_counted():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.idle = nn.Parameter(torch.zeros(256))

        def forward(self, x):
            return x + 1

    notes = []
    graph = graph_of(program_of(Idle().eval(), (torch.ones(2),), name="net"), note=notes.append)
    assert notes == ["net: 1.00 KiB of parameters, buffers and inputs are never read and not counted"]
    assert graph.persistent.sum() == 8


class Exchanged(nn.Module):
    def forward(self, x):
        y = x + 1
        y.set_(x * 2)
        return y


class Enlarged(nn.Module):
    def forward(self, x):
        y = x + 1
        return y.resize_(100).zero_()


@pytest.mark.parametrize(("model", "node"), [(Exchanged, "set_"), (Enlarged, "resize_")])
def test_exchanged_memory_is_refused(model, node):
    with pytest.raises(ProgramError, match=f"node '{node}' .* exchanges or resizes the memory of its argument"):
        graph_of(program_of(model(), (torch.randn(2),), name="net"))


class Views(nn.Module):
    """A view of everything, of a part, of nothing but repetitions, and one of what the caller gives."""

    def forward(self, x):
        made = x.t() @ x
        return made.t() @ made, made[2:].exp(), made[:1, :1].expand(6, 6).sin(), made[6:, 3:].cos()


def test_the_size_of_a_view_is_what_a_copy_of_it_takes():
    graph = graph_of(program_of(Views(), (torch.randn(5, 6),)))
    views = np.flatnonzero(graph.alias_of >= 0).tolist()
    sizes = {graph.op_names[graph.tensor_producer[t]]: int(graph.tensor_size[t]) for t in views}
    assert sizes == {"t_1": 144, "slice_1": 96, "slice_2": 24, "slice_3": 4, "expand": 4, "slice_4": 0, "slice_5": 0}
    problem = Problem(graph)
    assert simulate(problem, Schedule.single_device(graph.input_order)).peak == 120 + 4 * 144 - 48


def test_of_a_program_on_cuda_the_bytes_in_the_cpus_memory_do_not_count():
    graph = torch.fx.Graph()
    x, weight = graph.placeholder("x"), graph.placeholder("weight")
    left = graph.call_function(torch.ops.aten.relu.default, (x,))
    moved = graph.call_function(torch.ops.aten._to_copy.default, (left,), {"device": torch.device("cpu")})
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (moved, weight)),))
    with FakeTensorMode():
        there, here = torch.empty(10, device="cuda"), torch.empty(10)
    for given, sizes, held in (((there, here), [[40], [0], [0]], 40), ((here, here.clone()), [[40]] * 3, 80)):
        module = torch.fx.GraphModule(nn.Module(), graph)
        program = TorchProgram("moved", module, given, ("input", "parameter"), ("x", "weight"), ("output",))
        ops, residents = Import(program, Roofline(), None).run()
        assert [op["outputs"] for op in ops] == sizes
        assert sum(resident.size for resident in residents) == held


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
