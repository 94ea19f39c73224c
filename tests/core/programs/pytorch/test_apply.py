"""Programs in another order: bitwise the same results, or an error and no file."""

import copy
import threading
from operator import getitem

import pytest
import torch
from models import torch_models
from models.orders import random_order, write_schedule
from schedopt import ProgramError, ScheduleError
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pipeline import apply
from schedopt.core.programs.pytorch import runtime as torch_runtime
from schedopt.core.programs.pytorch.importer import graph_of
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import check_module, reorder, repeatable_kernels, results_of
from schedopt.core.programs.pytorch.tracing import LOCK, TorchProgram, foreign_code
from schedopt.core.programs.runtime import check_equal, check_order
from torch import nn
from torch.utils._pytree import tree_leaves


def names_of_ops(module):
    """Return the ops that a graph module calls, in order; checks of the inputs are none."""
    calls = [node for node in module.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    return [node.name for node in calls]


def options(training="none"):
    return ImportOptions(training=training)


@pytest.fixture(scope="module")
def training():
    program = program_of(*torch_models.branches_in_training(), "sgd")
    return program, graph_of(program)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_the_graph_gives_the_same_results(training, seed):
    program, graph = training
    order = random_order(graph, seed)
    module = reorder(program, graph, order)
    assert names_of_ops(module) == [graph.op_names[op] for op in order] != names_of_ops(program.module)
    for node in module.graph.nodes:
        assert node.target is not getitem or node.prev.target is getitem or node.prev is node.args[0]
    check_module(program, module)


def test_what_is_no_order_of_the_program_is_refused(training):
    """An op too early, missing, or again too late; a write before the read it would spoil; random ops exchanged."""
    _, graph = training
    order = graph.input_order.tolist()
    with pytest.raises(ScheduleError, match=f"op '{graph.op_names[order[-1]]}'"):
        check_order(graph, [order[-1], *order[:-1]])
    with pytest.raises(ScheduleError, match=f"op '{graph.op_names[order[-1]]}'.* never runs"):
        check_order(graph, order[:-1])
    with pytest.raises(ScheduleError, match=f"op '{graph.op_names[order[0]]}' runs again after op 'add__"):
        check_order(graph, [*order, order[0]])

    waits = {(int(a), int(b)) for a, b in zip(*graph.edges, strict=True)}
    producers = graph.tensor_producer
    reads = [graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]] for op in range(graph.num_ops)]
    data = {(int(producers[t]), op) for op in order for t in reads[op] if not graph.is_control[t]}
    refused = set()
    for earlier, later in sorted(waits - data):
        needed = {later}
        for op in reversed(order):
            if any((op, other) in waits - {(earlier, later)} for other in needed):
                needed.add(op)
        if earlier not in needed:  # this order breaks one rule alone: `later` waits for `earlier`
            hasty = [op for op in order if op in needed] + [op for op in order if op not in needed]
            text = f"op '{graph.op_names[later]}'.* runs .*{graph.op_names[earlier]}:"
            with pytest.raises(ScheduleError, match=text):
                check_order(graph, hasty)
            refused.add(graph.op_names[later].rstrip("_0123456789"))
    assert {"add", "bernoulli"} <= refused, "no write in place or no random op was tried"


@pytest.mark.slow
def test_a_result_that_differs_is_named():
    program = program_of(*torch_models.branches_in_training(), "sgd")

    def changed(target, **kwargs):
        module = copy.deepcopy(program.module)
        node = next(node for node in module.graph.nodes if str(node.target) == target)
        node.kwargs = {**node.kwargs, **kwargs}
        module.recompile()
        return module

    first = next(node for node in program.module.graph.nodes if str(node.target) == "aten.add_.Tensor")
    with pytest.raises(ScheduleError, match=f"'{first.args[0].name}' would not be bitwise"):
        check_module(program, changed("aten.add_.Tensor", alpha=2))
    found = zip(program.arguments, program.roles, strict=True)
    others = [value + 1 if role == "input" else value for value, role in found]
    one, other = (results_of(program, program.module, arguments) for arguments in (program.arguments, others))
    with pytest.raises(ScheduleError, match="result 0 would not be bitwise"):
        check_equal("", one, other)


def test_results_that_no_kernel_repeats_are_warned_of_on_cuda_and_others_compared(monkeypatch):
    """Kernels that repeat are asked for, whatever the process has asked for."""
    asked = []

    def noise(x: torch.Tensor) -> torch.Tensor:
        asked.append(torch.are_deterministic_algorithms_enabled())
        return x + len(asked)

    with torch.library._scoped_library("noises", "DEF") as library:
        library.define("noise(Tensor x) -> Tensor")
        library.impl("noise", noise, "CompositeExplicitAutograd")
        library.impl("noise", torch.empty_like, "Meta")
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        noises = graph.call_function(torch.ops.noises.noise.default, (x,))
        double = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
        graph.output((noises, double))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        other = copy.deepcopy(module)
        node = next(iter(other.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)))
        node.args = (node.args[0], 3)
        program = TorchProgram("odd", module, (torch.ones(2),), ("input",), ("x",), ("output", "output"))
        with pytest.raises(ScheduleError, match="odd: result 0 would not be bitwise"):
            check_module(program, module)
        monkeypatch.setattr(TorchProgram, "device", torch.device("cuda"))
        with pytest.warns(UserWarning, match="odd: 1 of 3 results, the first of them result 0, have other bits"):
            check_module(program, module)
        with pytest.warns(UserWarning, match="odd: 1 of 3"), pytest.raises(ScheduleError, match="odd: result 1 would"):
            check_module(program, other)
    assert asked == [False, False, *[True] * 6] and not torch.are_deterministic_algorithms_enabled()


def test_a_check_in_another_thread_does_not_keep_the_kernels_of_this_one():
    def check():
        with repeatable_kernels():
            pass

    with LOCK:
        thread = threading.Thread(target=check)
        thread.start()
        thread.join(timeout=0.05)
        assert thread.is_alive() and not torch.are_deterministic_algorithms_enabled()
    thread.join()


@pytest.mark.parametrize("has_gpu", [False, True])
def test_an_error_about_storages_is_told_whatever_it_may_come_from(monkeypatch, has_gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    with pytest.raises(ProgramError, match="no attribute 'of_mine'") as told, foreign_code("net", "it fails"):
        torch.ones(2).untyped_storage().of_mine  # noqa: B018
    assert ("torch.backends.cudnn.enabled=False" in str(told.value)) == has_gpu


@pytest.mark.slow
def test_a_written_training_step_updates_what_program_order_updates(tmp_path):
    program = program_of(*torch_models.branches_in_training(), "sgd")
    graph = graph_of(program)
    schedule = write_schedule(tmp_path / "s.json", graph, random_order(graph, 1))
    notes = []
    apply("models.torch_models:branches_in_training", schedule, str(tmp_path / "o.pt2"), options("sgd"), notes.append)
    assert any(f"{len(program.arguments)} tensors" in note for note in notes)
    exported = torch.export.load(tmp_path / "o.pt2")
    arguments, _ = exported.example_inputs
    for start, given in zip(program.arguments, arguments, strict=True):
        assert torch.equal(start, given)
    torch.manual_seed(5)
    loss = exported.module()(*arguments)
    torch.manual_seed(5)
    expected = program.module(*program.arguments)
    assert torch.equal(loss, tree_leaves(expected)[0])
    assert all(torch.equal(one, other) for one, other in zip(arguments, program.arguments, strict=True))


class Looked(nn.Module):
    """Its training step meets a tensor that is neither parameter nor buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)[:, torch.tensor([0, 2])]


def test_a_training_step_with_a_constant_can_be_saved():
    program = program_of(Looked(), torch.randn(3, 4), "sgd")
    graph = graph_of(program)
    assert "constant" in program.roles
    exported = torch_runtime.export_in_order(program, graph, graph.input_order.tolist())
    check_module(program, exported.graph_module)


class Conjugated(nn.Module):
    """Returns lazy views: a conjugate, and the negative imaginary part of one."""

    def forward(self, x):
        y = torch.complex(x, x + 1)
        return y.conj(), y.conj().imag, y


def test_conjugate_results_are_compared():
    program = program_of(Conjugated(), torch.randn(3, 4))
    graph = graph_of(program)
    check_module(program, reorder(program, graph, random_order(graph, 0)))
    one, other = (results_of(program, program.module, [torch.full((3, 4), by)]) for by in (1.0, 2.0))
    assert all(one[name] != other[name] for name in one)


def test_a_program_that_pytorch_cannot_save_is_one_sentence(tmp_path, monkeypatch):
    """As of a named tuple of PyTorch's own, which versions before 2.15 cannot write."""

    def save(exported, file):
        raise TypeError("return_types.topk\nhas no serialized name")

    monkeypatch.setattr(torch.export, "save", save)
    graph = graph_of(program_of(*torch_models.linear()))
    schedule = write_schedule(tmp_path / "s.json", graph, graph.input_order.tolist())
    with pytest.raises(ProgramError, match=r"^models.torch_models:linear: PyTorch cannot save .*: .*topk") as caught:
        apply("models.torch_models:linear", schedule, str(tmp_path / "o.pt2"), options(), print)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]
