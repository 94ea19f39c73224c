"""`torch.compile(backend="schedopt")`: bitwise what PyTorch's own order gives, and no more memory than it counts."""

import importlib
import warnings
from pathlib import Path

import pytest
import torch
from models import torch_programs
from schedopt import Problem, Schedule, UsageError
from schedopt.core.model.simulator import simulate
from schedopt.core.programs.pytorch import dynamo_backend
from schedopt.core.programs.pytorch.dynamo_backend import SAVED, aot_graph, backend
from schedopt.core.programs.pytorch.run import trace_cpu_allocator
from schedopt.core.programs.pytorch.tracing import in_order, is_number
from schedopt.core.solve.solve import solve
from torch import fx, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

aten = torch.ops.aten
ROOT = Path(__file__).parents[4]
FEW = {"evaluations": 200}


@pytest.fixture(autouse=True)
def fresh():
    """Compile each test's models anew, and leave nothing behind."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Branches(nn.Module):
    """Wide branches of which eager runs all before it sums any, though each could be reduced at once."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32))

    def forward(self, x):
        hidden = torch.tanh(x @ self.weight)
        wide = [torch.sigmoid(hidden * number).repeat(1, number + 1) for number in range(4)]
        return hidden * sum(each.mean(1, keepdim=True) for each in wide)


class Broken(nn.Module):
    """A graph break between two layers, and a block that is recomputed in the backward pass."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        torch._dynamo.graph_break()
        return checkpoint(lambda value: torch.sigmoid(self.second(value)).exp(), hidden, use_reentrant=False)


MODELS = {
    "branches": (Branches, lambda batch: torch.randn(batch, 32)),
    "normed": (torch_programs.Normed, lambda batch: torch.randn(batch, 3, 5, 5)),
    "language": (torch_programs.Language, lambda batch: torch.randint(0, 11, (batch, 5))),
    "broken": (Broken, lambda batch: torch.randn(batch, 6)),
}


def steps(compiler, kind, batches, dynamic=None, **options):
    """Train for a few steps with plain gradient descent; return all outputs, parameters and buffers."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    build, inputs = MODELS[kind]
    model = build().train()
    compiled = torch.compile(model, backend=compiler, dynamic=dynamic, **options)
    values = []
    for batch in batches:
        result = compiled(inputs(batch))
        loss = sum(leaf.square().mean() for leaf in pytree.tree_leaves(result))
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        values.append(pytree.tree_map(torch.detach, result))
    return [*pytree.tree_leaves(values), *model.parameters(), *model.buffers()]


def check_bitwise(kind, batches, dynamic=None):
    expected = steps("aot_eager", kind, batches, dynamic)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "schedopt")
        found = steps(backend, kind, batches, dynamic, options=FEW)
    assert len(expected) == len(found)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dynamic"),
    [(kind, dynamic) for kind in MODELS for dynamic in (False, True) if not dynamic or kind != "language"],  # long
)
def test_steps_of_several_sizes_are_bitwise_those_of_aot_eager(kind, dynamic):
    check_bitwise(kind, [3, 3, 5], dynamic)


@pytest.mark.slow
def test_inference_and_inputs_written_in_place():
    """What the caller's tensors hold afterwards is part of the result."""

    def function(x, buffer):
        buffer.mul_(2)
        x.add_(buffer.sum())
        return (x * 3).sum(), buffer.view(-1)[:2]

    results = []
    for compiler in ("aot_eager", backend):
        torch._dynamo.reset()
        x, buffer = torch.arange(4.0), torch.ones(2, 2)
        results.append([*torch.compile(function, backend=compiler)(x, buffer), x, buffer])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.fixture
def planned(monkeypatch):
    """Collect each graph that the backend plans with, and by whom its placeholders are kept."""
    graphs = {}

    def spy(name, module, inputs, kept):
        graphs[name] = aot_graph(name, module, inputs, kept)
        return graphs[name]

    monkeypatch.setattr(dynamo_backend, "aot_graph", spy)
    return graphs


@pytest.mark.slow
def test_the_allocator_holds_what_is_counted(planned):
    """To a few bytes (the loss), in both passes: saved tensors and gradients are freed as they are consumed."""
    model = Branches()
    compiled = torch.compile(model, backend=backend, options={"evaluations": 500, "method": "auto"})
    x = torch.randn(512, 32)
    for _ in range(2):
        compiled(x).square().sum().backward()
        model.weight.grad = None
    with trace_cpu_allocator() as trace:
        with torch.profiler.record_function("forward"):
            result = compiled(x)
        loss = result.square().sum()
        with torch.profiler.record_function("backward"):
            loss.backward()
    forward, backward = planned.values()
    solved = {graph.name: solve(Problem(graph), evaluations=500) for graph in (forward, backward)}
    assert all(result.peak_memory < input_peak_of(result.problem.graph) for result in solved.values())
    counted = solved[forward.name].peak_memory - int(forward.persistent.sum())
    assert trace.peak_and_rest("forward")[0] == pytest.approx(counted, abs=64)
    *saved, _gradient = [int(backward.tensor_size[at]) for at in backward.outputs(0) if not backward.is_control[at]]
    counted = solved[backward.name].peak_memory - int(backward.persistent.sum()) - sum(saved)
    assert backward.op_names[0] == SAVED
    assert trace.peak_and_rest("backward")[0] == pytest.approx(counted, abs=64)


def input_peak_of(graph):
    return simulate(Problem(graph), Schedule.single_device(graph.input_order)).peak


@pytest.mark.slow
def test_a_graph_that_cannot_be_scheduled_keeps_its_order_with_one_warning():
    def function(x):
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,)) + 1

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    with pytest.warns(UserWarning) as caught:
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
        assert torch.equal(compiled(-torch.ones(3)), torch.full((3,), -1.0))
    ours = [str(warning.message) for warning in caught if "schedopt" in str(warning.message)]
    assert len(ours) == 1
    assert ours[0].startswith("schedopt leaves a graph in its own order: ") and "(cond, " in ours[0]


@pytest.mark.slow
def test_sizes_that_depend_on_values_keep_their_order():
    def function(x):
        return torch.nonzero(x).float() * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        with pytest.warns(UserWarning, match="own order: .* depends on the values of tensors"):
            found = compiled(torch.tensor([0.0, 1.0, 2.0]))
    assert found.tolist() == [[2.0], [4.0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"tiem_limit": 1}}, "has no option 'tiem_limit'; it has method, memory_limit, evaluations, time"),
        ({"options": {"time_limit": "soon"}}, "soon"),
        ({"options": {"evaluations": 0}}, "evaluations"),
        ({"options": {"memory_limit": "much"}}, "much"),
        ({"options": {"method": "none"}}, "unknown method 'none'"),
        ({"options": {"method": 3}}, "a method is a name"),
        ({"options": {"method": "depth-first-dp", "evaluations": 5}}, "depth-first-dp"),
        ({"mode": "reduce-overhead"}, "has no mode 'reduce-overhead'; it has default, max-autotune"),
    ],
)
def test_each_wrong_setting_is_one_sentence(settings, message):
    compiled = torch.compile(nn.Linear(2, 2), backend=backend, **settings)
    with pytest.raises(UsageError) as caught:
        compiled(torch.ones(1, 2))
    sentence = str(caught.value).partition("\n")[0]
    assert message in sentence
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.slow
def test_a_memory_limit_that_no_order_keeps_is_told():
    compiled = torch.compile(Branches(), backend=backend, options={"memory_limit": "1KiB", **FEW})
    with torch.no_grad(), pytest.warns(UserWarning, match="needs less than .* and the memory limit is 1.00 KiB"):
        compiled(torch.randn(64, 32))


def test_the_entry_point_names_the_backend():
    text = (ROOT / "pyproject.toml").read_text().split("[project.entry-points.torch_dynamo_backends]\n", 1)[1]
    module, _, name = text.splitlines()[0].removeprefix("schedopt = ").strip('"').partition(":")
    assert getattr(importlib.import_module(module), name) is backend


def module_of(build):
    """Return the graph that a function builds, with the results that a run on fakes would note."""
    graph = fx.Graph()
    build(graph)
    return fx.GraphModule({}, graph)


def test_what_uses_a_size_waits_for_the_tensor_that_has_it():
    """In any order of the graph, though no data go from one to the other."""

    def build(graph):
        x = graph.placeholder("x")
        made = graph.call_function(aten.relu.default, (x,))
        length = graph.call_function(aten.sym_size.int, (made, 0))
        length.meta["val"] = 4
        other = graph.call_function(aten.ones.default, ([length],))
        graph.output((other, made))

    module = module_of(build)
    (number,) = [node for node in module.graph.nodes if is_number(node)]
    graph = aot_graph("sizes", module, [torch.ones(4)], [True])
    assert graph.op_names == ("relu_default", "ones_default")
    assert list(zip(*map(list, graph.edges), strict=True)) == [(0, 1)]
    again = in_order(module, ["relu_default", "ones_default"])
    names = [node.name for node in again.graph.nodes]
    assert names.index(number.name) == names.index("relu_default") + 1


def test_saved_views_of_one_tensor_are_counted_once():
    def build(graph):
        first, second, weight = (graph.placeholder(name) for name in ("first", "second", "weight"))
        one = graph.call_function(aten.neg.default, (first,))
        two = graph.call_function(aten.mul.Tensor, (second, weight))
        graph.output((one, two))

    saved = torch.ones(2, 8)
    graph = aot_graph("saved", module_of(build), [saved, saved.view(-1)[8:], torch.ones(8)], [False, False, True])
    assert graph.op_names[0] == SAVED
    assert graph.tensor_size[: graph.output_ptr[1]].tolist() == [64]
    assert graph.persistent.tolist() == [0, 0, 32]
    assert simulate(Problem(graph), Schedule.single_device(graph.input_order)).peak == 64 + 32 + 64 + 32


def test_collectives_keep_their_order():
    """All processes must meet in the same one, whatever each has found."""
    reduce = torch.ops._c10d_functional.all_reduce.default

    def build(graph):
        a, b = graph.placeholder("a"), graph.placeholder("b")
        graph.output(tuple(graph.call_function(reduce, (each, "sum", "0")) for each in (a, b)))

    graph = aot_graph("collectives", module_of(build), [torch.ones(2), torch.ones(3)], [True, True])
    assert list(zip(*map(list, graph.edges), strict=True)) == [(0, 1)]
