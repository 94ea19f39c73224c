"""Every op says which module and line it comes from, and every persistent byte which tensor it is."""

import inspect
from collections import Counter
from pathlib import Path

import models.torch_models as named_models
import pytest
import torch
from models.seeds import mostly_slow
from models.torch_programs import MODELS, build
from schedopt.core.programs.pytorch.importer import graph_of
from schedopt.core.programs.pytorch.program import program_of
from torch import nn
from torch.utils.checkpoint import checkpoint

MODELS_BY_NAME = ("branches", "branches_in_training", "attention", "recurrent", "convolutions", "linear", "largest")
QUICK = {"written-views", "buffers", "drawn", "language-adam", "recurrent-sgd", "attention-none", "convolutions-adam"}


def cases():
    """Return every model of the tests: as those of `torch_programs` are used, and the others forward and trained."""
    for name in MODELS:
        yield name, lambda name=name: build(name)
    for name in MODELS_BY_NAME:
        for training in ("none", "adam"):
            if (name, training) != ("largest", "adam"):  # has no parameter
                yield f"{name}-{training}", lambda n=name, t=training: (*getattr(named_models, n)(), t)


CASES = dict(cases())


@pytest.mark.slow
@pytest.mark.parametrize("case", mostly_slow(CASES, QUICK))
def test_residents_are_the_persistent_bytes_and_ops_have_their_module_and_phase(case):
    model, inputs, training = CASES[case]()
    program = program_of(model, inputs, training)
    graph = graph_of(program)
    known = graph.annotations
    known.check(graph.persistent.tolist(), "graph")
    sizes = Counter()
    for resident in known.residents:
        sizes[resident.op] += resident.size
        touched = {*resident.readers, *resident.writers}
        assert (resident.op in touched) if touched else resident.op == -1
        assert list(resident.readers) == sorted(resident.readers)
        assert list(resident.writers) == sorted(resident.writers)
    assert [sizes[op] for op in range(graph.num_ops)] == graph.persistent.tolist()

    held = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    assert {r.name for r in known.residents if r.role in ("parameter", "buffer")} <= held
    paths = {path for path, _ in model.named_modules()}
    trained = {name for name, _ in model.named_parameters()}
    for module, phase in zip(known.modules, known.phases, strict=bool(known.modules)):
        assert module in (trained | {""} if phase == "update" else paths)
    phases = list(dict.fromkeys(known.phases))
    assert phases == (["forward"] if training == "none" else ["forward", "backward", "update"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["buffers", "language-adam", "normed-sgd", "written-views"])
def test_readers_and_writers_are_those_of_a_run(name):
    """A run of the program on real tensors: an op accesses a resident if a tensor it is given is in its memory."""
    program = program_of(*build(name))
    graph = graph_of(program)
    nodes = [node for node in program.module.graph.nodes if node.op == "placeholder"]
    reads = {resident.name: set() for resident in graph.annotations.residents}
    writes = {resident.name: set() for resident in graph.annotations.residents}

    class Watching(torch.fx.Interpreter):
        def run_node(self, n):
            if n.op != "call_function" or n.name not in places:
                return super().run_node(n)
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            given = [leaf for leaf in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            versions = [tensor._version for tensor in given]
            result = super().run_node(n)
            for tensor, version in zip(given, versions, strict=True):
                owner = owners.get(tensor.untyped_storage().data_ptr())
                is_unread = "norm_backward" in n.name and "running" in (owner or "")  # in training it takes the batch's
                if owner is not None and not is_unread:
                    (reads if tensor._version == version else writes)[owner].add(places[n.name])
            return result

    places = {name: op for op, name in enumerate(graph.op_names)}
    owners = {}
    for node, label, value in zip(nodes, program.names, program.arguments, strict=True):
        assert node.op == "placeholder"
        if isinstance(value, torch.Tensor):
            owners.setdefault(value.untyped_storage().data_ptr(), label)
    with torch.set_grad_enabled(program.training != "none"):
        Watching(program.module).run(*program.arguments)
    for resident in graph.annotations.residents:
        written = set(resident.writers)
        if not resident.name.startswith("norm.running"):  # batch norm does not count its writes
            assert written == writes[resident.name], resident.name
        assert set(resident.readers) | written == reads[resident.name] | writes[resident.name], resident.name


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.first(x).relu()
        with torch.no_grad():
            scale = hidden * 2
        return self.second(hidden) + scale


class Stack(nn.Module):
    def __init__(self, is_checkpointed=False):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.is_checkpointed = is_checkpointed

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return x.sigmoid()


def line_of(function, text):
    """Return the file and line of a method that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return f"{Path(__file__).name}:{first + next(n for n, line in enumerate(lines) if text in line)}"


FIRST, SCALE = line_of(Block.forward, "self.first"), line_of(Block.forward, "hidden * 2")
SECOND, LAST = line_of(Block.forward, "self.second"), line_of(Stack.forward, "sigmoid")


def sources(graph, phase, kinds):
    """Return module and line of each op of a phase whose name begins with one of the kinds, in program order."""
    known = graph.annotations
    return [
        (name.rstrip("_0123456789"), known.modules[op], known.lines[op])
        for op, name in enumerate(graph.op_names)
        if known.phases[op] == phase and name.startswith(kinds)
    ]


def of_blocks(numbers, rows):
    return [(kind, f"blocks.{number}{path}", line) for number in numbers for kind, path, line in rows]


FORWARD = [("addmm", ".first", FIRST), ("relu", "", FIRST), ("mul", "", SCALE), ("addmm", ".second", SECOND)]
BACKWARD = [
    ("mm", ".second", SECOND),
    ("mm", ".second", SECOND),
    ("threshold_backward", "", FIRST),
    ("mm", ".first", FIRST),
    ("mm", ".first", FIRST),
]


@pytest.mark.slow
@pytest.mark.parametrize("exported", [False, True])
@pytest.mark.parametrize("training", ["none", "sgd"])
def test_ops_name_the_module_that_calls_them_and_the_users_line(exported, training):
    model, inputs = Stack(), (torch.randn(3, 4),)
    if exported:
        model = torch.export.export(model, inputs, strict=False)
    graph = graph_of(program_of(model, inputs, training))
    kinds = ("addmm", "relu", "mul", "sigmoid")
    assert sources(graph, "forward", kinds) == [*of_blocks((0, 1), FORWARD), ("sigmoid", "", LAST)]
    if training == "sgd":
        backward = sources(graph, "backward", ("mm", "threshold", "sigmoid"))
        assert backward[0] == ("sigmoid_backward", "", LAST)
        assert backward[1:] == of_blocks((1, 0), BACKWARD)[: len(backward) - 1]
        assert len(backward) == 10  # the input needs no gradient
        updated = [module for _, module, _ in sources(graph, "update", ("add",))]
        assert updated == [name for name, _ in Stack().named_parameters()]


def test_what_a_checkpoint_computes_again_is_of_the_backward_and_has_its_module():
    graph = graph_of(program_of(Stack(is_checkpointed=True), (torch.randn(3, 4),), "sgd"))
    again = sources(graph, "backward", ("addmm", "relu"))
    assert of_blocks((1,), FORWARD[:2]) == again[:2]
    assert ("addmm", "blocks.0.first", FIRST) in again
    assert sources(graph, "forward", ("addmm", "relu")) == of_blocks((0, 1), [FORWARD[0], FORWARD[1], FORWARD[3]])


def test_each_op_of_adam_names_its_parameter_and_its_state_the_parameters_name():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    graph = graph_of(program_of(model, torch.randn(5, 3), "adam"))
    known = graph.annotations
    residents = {resident.name: resident for resident in known.residents}
    for name, _ in model.named_parameters():
        for kind in ("exp_avg", "exp_avg_sq"):
            state = residents[f"{name}.{kind}"]
            assert state.role == "state"
            assert {known.modules[op] for op in (*state.readers, *state.writers)} == {name}
        assert [known.modules[op] for op in residents[name].writers] == [name]
        assert [known.phases[op] for op in residents[name].writers] == ["update"]
    assert residents["step"].role == "state"
    assert residents["input"].role == "input"
    assert known.lines == ()  # PyTorch's own modules alone, called by us


@pytest.mark.slow
def test_a_tied_weight_is_one_resident_and_is_read_where_both_are():
    model, inputs = named_models.branches()
    known = graph_of(program_of(model, inputs)).annotations
    (weight,) = [resident for resident in known.residents if resident.name in ("one.weight", "two.weight")]
    assert {known.modules[op] for op in weight.readers} == {"one", "two"}
    (calls,) = [resident for resident in known.residents if resident.name == "calls"]
    assert calls.role == "buffer"
    assert len(calls.writers) == 1


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, batch, *more, scale=1.0):
        return self.layer(batch["pair"][0] + batch["pair"][1]) * scale + more[0]


def test_inputs_are_called_as_the_model_calls_them():
    x = torch.randn(3, 2)
    program = program_of(Nested(), ({"pair": (x, x.clone())}, x.clone()), "sgd")
    names = [resident.name for resident in graph_of(program).annotations.residents if resident.role == "input"]
    assert names == ["batch['pair'][0]", "batch['pair'][1]", "args[1]"]


@pytest.mark.slow
def test_a_saved_program_keeps_modules_and_lines(tmp_path):
    program = program_of(Stack(), torch.randn(3, 4))
    torch.export.save(program.exported, tmp_path / "stack.pt2")
    again = graph_of(program_of(torch.export.load(tmp_path / "stack.pt2"), torch.randn(3, 4)))
    known = graph_of(program).annotations
    assert (again.annotations.modules, again.annotations.lines) == (known.modules, known.lines)
