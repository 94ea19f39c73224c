"""PyTorch programs as graphs: any order that the graph allows gives the same bits, and holds the bytes predicted."""

from operator import getitem

import numpy as np
import pytest
import torch
from models.seeds import mostly_slow, seeds
from models.torch_programs import MODELS, Run, build, op_of, same_bits
from schedopt.core.base.errors import ProgramError, UsageError
from schedopt.core.model.simulator import simulate
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.options import ImportOptions, Roofline
from schedopt.core.programs.pytorch.importer import graph_of
from schedopt.core.programs.pytorch.program import program_of
from torch import nn
from torch.utils import _pytree as pytree

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


def random_order(graph, rng):
    """Draw an order that the graph allows, going deep half of the time."""
    pointers, successors = graph.successors
    waiting = np.diff(graph.predecessors[0]).tolist()
    ready = [op for op in range(graph.num_ops) if waiting[op] == 0]
    deep = rng.random() < 0.5
    order = []
    while ready:
        op = ready.pop(-1 if deep and rng.random() < 0.9 else int(rng.integers(len(ready))))
        order.append(op)
        for successor in successors[pointers[op] : pointers[op + 1]].tolist():
            waiting[successor] -= 1
            if waiting[successor] == 0:
                ready.append(successor)
    return order


def leaves_of(run, program, name):
    """Return the tensors among the results of an op, by port."""
    node = next(node for node in program.module.graph.nodes if node.name == name)
    result = run.values[node]
    leaves = [] if result is None else pytree.tree_leaves(result)
    return {port: leaf for port, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}


def test_ops_are_the_calls_in_program_order(imported):
    program, graph = imported
    calls = [node.name for node in program.module.graph.find_nodes(op="call_function", target=getitem)]
    nodes = [node.name for node in program.module.graph.nodes if node.op == "call_function" and node.name not in calls]
    assert list(graph.op_names) == nodes
    assert graph.input_order.tolist() == list(range(len(nodes)))


@pytest.mark.parametrize("seed", seeds(ORDERS, quick=3))
def test_any_order_gives_the_same_bits_and_holds_the_bytes_predicted(imported, in_program_order, seed):
    program, graph = imported
    order = random_order(graph, np.random.default_rng([70, seed]))
    run = Run(program, [graph.op_names[op] for op in order])
    assert same_bits(run.results, in_program_order.results)
    assert same_bits(run.arguments, in_program_order.arguments)
    predicted = simulate(Problem(graph), Schedule.single_device(np.array(order))).step_memory
    assert (predicted - graph.persistent.sum()).tolist() == run.memory


def test_aliases_are_the_tensors_that_share_storage(imported, in_program_order):
    program, graph = imported
    held = {a.untyped_storage().data_ptr() for a in in_program_order.arguments if isinstance(a, torch.Tensor)}
    roots = {}
    for op, name in enumerate(graph.op_names):
        known, siblings = set(roots.values()), set()
        for port, leaf in leaves_of(in_program_order, program, name).items():
            tensor = int(graph.output_ptr[op]) + port
            storage = leaf.untyped_storage()
            if storage.data_ptr() in held or storage.nbytes() == 0:
                assert graph.tensor_size[tensor] == 0
            elif storage.data_ptr() in siblings:  # read through the first of them
                assert graph.tensor_size[tensor] == 0
                assert tensor not in graph.read_tensor
            else:
                siblings |= {storage.data_ptr()} - known
                root = int(graph.root[tensor])
                assert roots.setdefault(root, storage.data_ptr()) == storage.data_ptr()
                assert graph.tensor_size[root] == storage.nbytes()
    assert len(set(roots.values())) == len(roots)


def test_persistent_bytes_are_the_arguments_read_each_storage_once(imported):
    program, graph = imported
    read_arguments = [
        argument
        for node, argument in zip(program.module.graph.find_nodes(op="placeholder"), program.arguments, strict=True)
        if any(user.op == "call_function" for user in node.users)
    ]
    storages = {a.untyped_storage().data_ptr(): a.untyped_storage().nbytes() for a in read_arguments}
    assert graph.persistent.sum() == sum(storages.values())


def test_results_are_kept_and_nothing_else(imported):
    program, graph = imported
    returned = {node.name for node in program.module.graph.output_node().all_input_nodes}
    taken = {
        node.name: (node.args[0].name, node.args[1])
        for node in program.module.graph.find_nodes(op="call_function", target=getitem)
    }
    wanted = {taken.get(name, (name, 0)) for name in returned}
    wanted = {(name, port) for name, port in wanted if name in graph.op_names}
    ops = graph.tensor_producer
    final = {(graph.op_names[ops[t]], t - int(graph.output_ptr[ops[t]])) for t in np.flatnonzero(graph.is_final)}
    assert final == wanted


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


def test_measured_costs_replace_the_roofline():
    program = plain()
    names = graph_of(program).op_names
    measured = {name: (float(at), 100 + at) for at, name in enumerate(names)}
    graph = graph_of(program, measured=measured)
    assert graph.runtime.tolist() == list(range(len(names)))
    assert graph.workspace.tolist() == [100 + at for at in range(len(names))]


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


def test_read_is_what_import_calls(tmp_path, monkeypatch):
    (tmp_path / "read_net.py").write_text(
        "from torch import nn, ones\ndef build():\n    return nn.Linear(3, 2).eval(), (ones(4, 3),)\n"
    )
    monkeypatch.chdir(tmp_path)
    notes = []
    graph = read_model("read_net:build", ImportOptions(), notes.append)
    assert (graph.name, graph.op_names) == ("read_net.build", ("t", "addmm"))
    assert graph.persistent.sum() == 4 * (6 + 2 + 12)
    trained = read_model("read_net:build", ImportOptions(training="sgd", flops=1.0), notes.append)
    assert trained.runtime.max() >= 1e6 * 2 * 4 * 3 * 2
    assert notes == [
        "read_net:build: the model is in evaluation mode; call its train() to train as usual",
        "read_net:build: the loss is the mean of the model's output",
    ]
    with pytest.raises(UsageError, match="flops= must be more than 0"):
        read_model("read_net:build", ImportOptions(flops=0), notes.append)


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
