"""Loading and tracing PyTorch programs: the results are the model's, a step is torch.optim's, errors are sentences."""

import copy
from pathlib import Path

import pytest
import schedopt
import torch
import torch.nn.functional as F
import yaml
from models.torch_programs import MODELS, build, copies, same_bits
from schedopt import ProgramError, UsageError
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pytorch.program import DEFAULTS, load_program, program_of
from torch import nn
from torch.utils import _pytree as pytree

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())

FORWARD = [name for name, (_, _, training) in MODELS.items() if training == "none"]
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def state_of(program, arguments, role):
    return [a for a, is_role in zip(arguments, program.roles, strict=True) if is_role == role]


def close(one, other):
    one, other = pytree.tree_leaves(one), pytree.tree_leaves(other)
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORWARD)
def test_forward_programs_give_the_models_results_and_buffers(name):
    model, inputs, _ = build(name)
    program = program_of(model, inputs)
    assert program.training == "none"
    reference, own_inputs = copy.deepcopy((model, inputs))
    arguments = copies(program.arguments)
    torch.manual_seed(3)
    results = program.module(*arguments)
    torch.manual_seed(3)
    with torch.no_grad():
        wanted = reference(*own_inputs)
    close(list(results), wanted)
    assert set(program.results) == {"output"}
    close(own_inputs, state_of(program, arguments, "input"))
    kept = dict(zip((node.name for node in program.module.graph.find_nodes(op="placeholder")), arguments, strict=True))
    for key, buffer in reference.named_buffers():
        close(kept["b_" + key.replace(".", "_")], buffer)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["written-views", "buffers", "several", "normed"])
def test_forward_programs_can_be_saved_and_called_like_the_model(name, tmp_path):
    model, inputs, _ = build(name)
    program = program_of(model, inputs)
    torch.export.save(program.exported, tmp_path / "net.pt2")
    own_inputs = copy.deepcopy(inputs)
    torch.manual_seed(3)
    wanted = model(*inputs)
    saved = torch.export.load(tmp_path / "net.pt2").module()
    torch.manual_seed(3)
    close(saved(*own_inputs), wanted)
    again = load_program(str(tmp_path / "net.pt2"))
    assert again.name == "net"
    targets, wanted = ([node.target for node in one.module.graph.nodes][-9:] for one in (again, program))
    assert targets == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "training"), [("normed", "sgd"), ("normed", "adam"), ("language", "adam"), ("recurrent", "sgd")]
)
def test_a_step_is_that_of_torch_optim(name, training):
    model, inputs, _ = build(name)
    model = model.double()  # where a gradient is nothing but rounding, Adam follows its sign
    inputs = tuple(value.double() if value.is_floating_point() else value for value in inputs)
    program = program_of(model, inputs, training)
    reference = copy.deepcopy(model)
    optimizer = OPTIMIZERS[training](reference.parameters(), lr=DEFAULTS[training]["learning_rate"])
    arguments = copies(program.arguments)
    for step in range(2):
        torch.manual_seed(step)
        loss = program.module(*arguments)
        torch.manual_seed(step)
        outputs = pytree.tree_leaves(reference(*inputs))
        wanted = outputs[0] if name == "language" else sum(value.mean() for value in outputs if value.requires_grad)
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        close(loss, wanted.detach())
        close(state_of(program, arguments, "parameter"), [p.detach() for p in reference.parameters()])
        close(state_of(program, arguments, "buffer"), list(reference.buffers()))
    assert program.exported is None
    assert program.results == ("loss",)


@pytest.mark.parametrize(
    ("training", "optimizer", "settings"),
    [
        ("sgd:learning_rate=0.3,weight_decay=0.1", torch.optim.SGD, {"lr": 0.3, "weight_decay": 0.1}),
        (
            "adam:learning_rate=0.02,beta1=0.8,beta2=0.9,epsilon=1e-3,weight_decay=0.2",
            torch.optim.Adam,
            {"lr": 0.02, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.2},
        ),
    ],
)
def test_parameters_of_an_optimizer_are_those_of_torch_optim(training, optimizer, settings):
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 2).double(), torch.randn(4, 3).double()
    program = program_of(model, inputs, training)
    reference = copy.deepcopy(model)
    update = optimizer(reference.parameters(), **settings)
    arguments = copies(program.arguments)
    for _ in range(3):
        program.module(*arguments)
        update.zero_grad()
        reference(inputs).mean().backward()
        update.step()
    close(state_of(program, arguments, "parameter"), [p.detach() for p in reference.parameters()])
    assert program.name == f"Linear-{training.partition(':')[0]}"


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ("sgd:momentum=0.9", "sgd has no 'momentum', only learning_rate, weight_decay"),
        ("adam:learning_rate=fast", "learning_rate is a number, not 'fast'"),
        ("adam:learning_rate=-1", "learning_rate is from 0, not -1"),
    ],
)
def test_parameters_that_an_optimizer_does_not_have_are_refused(training, message):
    with pytest.raises(UsageError, match=message):
        program_of(nn.Linear(3, 2), torch.ones(1, 3), training)


class Partly(nn.Module):
    """One parameter that is frozen, one that is not used, and two outputs."""

    def __init__(self):
        super().__init__()
        self.used = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.idle = nn.Parameter(torch.ones(3))

    def forward(self, x, scale=1):
        return {"a": x * self.used * scale, "b": self.used + self.frozen, "c": x.argmax()}


@pytest.mark.parametrize("training", ["sgd", "adam"])
def test_parameters_without_gradient_are_left_alone(training):
    notes = []
    program = program_of(Partly(), {"x": torch.arange(3.0), "scale": 4}, training, name="net", note=notes.append)
    assert notes == ["net: the loss is the sum of the means of 2 outputs"]
    arguments = copies(program.arguments)
    loss = program.module(*arguments)
    assert loss == 4 * 1 + 2
    used, frozen, idle = state_of(program, arguments, "parameter")
    assert torch.all(used < 1)
    assert torch.equal(frozen, torch.ones(3)) and torch.equal(idle, torch.ones(3))
    assert program.roles.count("state") == (3 if training == "adam" else 0)


def test_arguments_are_the_models_own_memory_and_running_builds_no_autograd_graph():
    model, inputs, _ = build("normed")
    program = program_of(model, inputs, "sgd")
    before = model.branch.weight.detach().clone()
    loss = program.module(*program.arguments)
    assert not loss.requires_grad
    assert not torch.equal(model.branch.weight, before)


@pytest.mark.slow
@pytest.mark.parametrize("functional", [False, True])
def test_exported_files_train_and_run(tmp_path, functional):
    model, inputs, _ = build("normed")
    exported = torch.export.export(model, inputs)
    path = tmp_path / "normed.pt2"
    torch.export.save(exported.run_decompositions({}) if functional else exported, path)
    program = load_program(str(path))
    assert set(program.results) == ({"output", "buffer"} if functional else {"output"})
    with torch.no_grad():
        wanted = copy.deepcopy(model)(*inputs)
    results = program.module(*copies(program.arguments))
    close(list(results[program.results.index("output") :]), wanted)
    if not functional:
        trained = load_program(str(path), ImportOptions(training="sgd"))
        assert trained.name == "normed-sgd"
        close(trained.module(*copies(trained.arguments)), wanted[0].mean() + wanted[1].mean())


@pytest.mark.slow
def test_what_the_mode_of_the_model_means_is_said():
    notes = []
    model, inputs, _ = build("normed")
    program_of(model, inputs, name="net", note=notes.append)
    program_of(model.eval(), inputs, "sgd", name="net", note=notes.append)
    program_of(model, inputs, name="net", note=notes.append)
    assert notes == [
        "net: the model is in training mode (dropout, batch statistics); call its eval() for inference",
        "net: the model is in evaluation mode; call its train() to train as usual",
        "net: the loss is the sum of the means of 2 outputs",
    ]


class Stretched(nn.Module):
    def forward(self, x, table, times):
        return x.reshape(x.shape[0] * 3) + table[: 3 * x.shape[0]] * times


@pytest.fixture(scope="module")
def stretched(tmp_path_factory):
    """Return an exported program of which the batch is symbolic, and its name in the file."""
    path = tmp_path_factory.mktemp("exported") / "stretched.pt2"
    batch = torch.export.Dim("batch", min=2, max=20)
    exported = torch.export.export(
        Stretched(),
        (torch.arange(12.0).reshape(4, 3), torch.arange(60.0), 2),
        dynamic_shapes={"x": {0: batch}, "table": None, "times": None},
    )
    torch.export.save(exported, path)
    (symbol,) = exported.range_constraints
    return str(path), str(symbol)


def test_symbolic_sizes_take_the_values_asked_for(stretched):
    path, symbol = stretched
    program = load_program(path, ImportOptions(shapes={symbol: 6}))
    x, table, times = program.arguments
    assert x.tolist() == [[3.0 * row, 3.0 * row + 1, 3.0 * row + 2] for row in (0, 1, 2, 3, 0, 1)]
    assert times == 2
    close(program.module(*program.arguments)[0], Stretched()(x, table, times))
    close(program.exported.module()(x, table, times), Stretched()(x, table, times))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, "stretched.pt2: the program has symbolic sizes: {0} (dimension 0 of 'x'); add --shape {0}=VALUE"),
        ({"n": 3}, "stretched.pt2: there is no symbolic size 'n'; it has {0} (dimension 0 of 'x')"),
        ({"": 21}, "stretched.pt2: size {0}=21 is not from 2 to 20"),
    ],
)
def test_symbolic_sizes_are_asked_for(stretched, shapes, message):
    path, symbol = stretched
    with pytest.raises(UsageError) as error:
        load_program(path, ImportOptions(shapes={name or symbol: value for name, value in shapes.items()}))
    assert str(error.value).endswith(message.format(symbol))


@torch.library.custom_op("schedopt_tests::without_meta", mutates_args=())
def without_meta(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


class Does(nn.Module):
    """Does what a function does with its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def branching(x):
    return x + 1 if x.sum() > 0 else x


def choosing(x):
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def repeating(x):
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]


REFUSED = [
    (branching, r"net: the model reads the value of a tensor to decide what to do at test_program.py:\d+, so "),
    (choosing, r"net: node 'cond' \(cond, .*test_program.py:\d+\) chooses or repeats a graph of its own, "),
    (repeating, r"net: node 'while_loop\w*' \(while_loop\w*, .*test_program.py:\d+\) chooses or repeats a graph"),
    (torch.nonzero, r"net: the size of node 'nonzero' \(aten.nonzero.default, test_program.py:\d+\) depends on"),
    (
        lambda x: torch.from_numpy(x.numpy()) + 1,
        r"net: the model cannot be exported at test_program.py:\d+: .numpy\(\) is not supported for tensor",
    ),
    (lambda x: x @ torch.ones(7, 7), r"net: the model cannot be exported at test_program.py:\d+: .*X \[7, 7\]"),
    (without_meta, r"net: the model cannot be exported at .*schedopt_tests::without_meta.* \(register"),
    (
        torch.Tensor.to_sparse,
        r"net: op aten._to_sparse.default at test_program.py:\d+ has no meta implementation; register a fake",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "message"), REFUSED)
def test_what_cannot_be_traced_is_named_in_one_sentence(function, message, capfd):
    with pytest.raises(ProgramError, match="^" + message) as error:
        program_of(Does(function), (torch.randn(2, 3),), name="net")
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


class Weighted(Does):
    """Any of the above with a weight, so that it could train."""

    def __init__(self, function):
        super().__init__(function)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.function(x * self.weight)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"), [pair for pair in REFUSED if pair[0] in (branching, repeating, without_meta)]
)
def test_the_same_holds_in_training(function, message):
    message = message.replace("model cannot be exported", "training step cannot be traced")
    with pytest.raises(ProgramError, match="^" + message) as error:
        program_of(Weighted(function), (torch.randn(2, 3),), "sgd", name="net")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ReLU(), "net: no parameter of the model requires a gradient; import it with --training none"),
        (Weighted(torch.nonzero), "net: no output of the model depends on a parameter that requires a gradient"),
    ],
)
def test_without_a_gradient_there_is_no_training(model, message):
    with pytest.raises(ProgramError, match=message):
        program_of(model, (torch.randn(2, 3),), "sgd", name="net")


NETS = """
import torch
from torch import nn
def build(): return nn.Linear(3, 2).eval(), (torch.ones(4, 3),)
def keywords(): return nn.Linear(3, 2).eval(), {"input": torch.ones(4, 3)}
def single(): return nn.Linear(3, 2).eval(), torch.ones(4, 3)
def broken(): raise ValueError("no weights here. Or there")
def number(): return 3
value = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "program_nets.py").write_text(NETS)
    (tmp_path / "program_broken.py").write_text("import not_installed_at_all\n")
    (tmp_path / "cut.pt2").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "text.pt2").write_text("text")
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.ones(1, 3),)), tmp_path / "whole.pt2")
    whole = (tmp_path / "whole.pt2").read_bytes()
    (tmp_path / "half.pt2").write_bytes(whole[: len(whole) // 2])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("function", ["build", "keywords", "single"])
def test_functions_return_a_model_and_its_inputs(folder, function):
    program = load_program(f"program_nets:{function}")
    assert program.name == f"program_nets.{function}"
    weight, bias, x = program.arguments
    assert same_bits(program.module(*program.arguments), (F.linear(x, weight, bias),))
    assert program.roles == ("parameter", "parameter", "input")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "message"), TABLE["what cannot be loaded"])
def test_what_cannot_be_loaded_is_named(folder, model, message):
    with pytest.raises(ProgramError, match="^" + message) as error:
        load_program(model)
    assert "\n" not in str(error.value)


class Keywords(nn.Module):
    def forward(self, x, y, scale=1):
        return x * 2 - y * scale


@pytest.mark.parametrize("exported", [False, True])
def test_keywords_are_taken_by_name(exported):
    x, y = torch.ones(2), torch.full((2,), 5.0)
    model = torch.export.export(Keywords(), (), {"y": y, "scale": 3, "x": x}) if exported else Keywords()
    for inputs in ({"x": x, "y": y, "scale": 3}, {"scale": 3, "y": y, "x": x}):
        program = program_of(model, inputs)
        assert program.module(*program.arguments)[0].tolist() == [-13.0, -13.0]
        assert program.exported.module()(**inputs).tolist() == [-13.0, -13.0]


def test_an_exported_program_has_inputs_of_its_own():
    exported = torch.export.export(Keywords(), (torch.ones(2),), {"y": torch.ones(2), "scale": 3})
    assert schedopt.import_model(exported).num_ops == 3


@pytest.mark.parametrize(
    "inputs", [{"y": torch.ones(2)}, (torch.ones(2), torch.ones(2), 3), {"x": 1, "y": 2, "scale": 3, "z": 4}]
)
def test_inputs_of_another_call_are_refused(inputs):
    exported = torch.export.export(Keywords(), (torch.ones(2),), {"y": torch.ones(2), "scale": 3})
    message = "net: it was exported for 1 arguments and the keywords y, scale, and is given other inputs"
    with pytest.raises(UsageError, match=message):
        program_of(exported, inputs, name="net")


def test_a_file_without_example_inputs_is_refused(folder):
    exported = torch.export.load("whole.pt2")
    exported._example_inputs = None
    torch.export.save(exported, "bare.pt2")
    with pytest.raises(ProgramError, match=r"^bare\.pt2: it has no example inputs; save the program that"):
        load_program("bare.pt2")


def test_options_that_do_not_fit_are_refused(folder):
    with pytest.raises(UsageError, match="training 'lion' is unknown; use one of none, sgd, adam"):
        load_program("program_nets:build", ImportOptions(training="lion"))
    with pytest.raises(UsageError, match="program_nets:build: the function has no keyword argument 'batch'"):
        load_program("program_nets:build", ImportOptions(shapes={"batch": 3}))
    with pytest.raises(UsageError, match=r"whole\.pt2: there is no symbolic size 'batch'; it has none"):
        load_program("whole.pt2", ImportOptions(shapes={"batch": 3}))


def test_a_product_makes_the_calls_of_a_model_whose_parameters_require_gradients():
    """PyTorch folds a batch of products into one where an operand requires a gradient; the bits differ."""

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(24, 8))

        def forward(self, x):
            return x.transpose(0, 1) @ self.weight.t()

    model, x = Product(), torch.randn(2, 5, 8)
    program = program_of(model, x)
    targets = [str(node.target) for node in program.module.graph.nodes]
    assert "aten.mm.default" in targets
    with torch.no_grad():
        assert torch.equal(program.module(*program.arguments)[0], model(x))
