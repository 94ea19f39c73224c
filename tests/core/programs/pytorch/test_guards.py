"""What a plan of `schedopt.optimize` depends on: each change of it is seen, and either planned anew or refused."""

import copy
import dataclasses
import functools
import gc
import types
import weakref

import numpy as np
import pytest
import torch
from schedopt import ProgramError, UsageError, optimize
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

OPTIMIZERS = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), 0.01),
    "adam": lambda model: torch.optim.Adam(model.parameters(), 0.001),
}


class Regression(nn.Module):
    """A loss that depends on the number of examples, with a plain value that has a default."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, y, scale=1.0):
        return ((self.two(self.one(x).relu()) - y) * scale).square().mean()


class Product(nn.Module):
    """Writes its first input in place."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x, y):
        x.add_(1)
        return (x * y * self.weight).sum()


class Twin:
    """A copy of a model, trained by PyTorch itself."""

    def __init__(self, model, training="sgd"):
        self.model = copy.deepcopy(model)
        self.optimizer = OPTIMIZERS[training](self.model)

    def step(self, *args, **kwargs):
        self.optimizer.zero_grad()
        loss = self.model(*args, **kwargs)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def is_as(self, model, exact=True):
        ours, theirs = model.state_dict(), self.model.state_dict()
        compare = torch.equal if exact else lambda one, other: torch.allclose(one, other, rtol=1e-6, atol=1e-7)
        return ours.keys() == theirs.keys() and all(compare(ours[name], theirs[name]) for name in ours)


def planned(model, inputs, **options):
    torch.manual_seed(0)
    return optimize(model, inputs, method="lpmf", **options)


def plans_of(module):
    return int(repr(module).rpartition(", ")[2].split()[0])


def batch(number, size=8, **kind):
    return torch.randn(number, size, **kind), torch.randn(number, size, **kind)


@pytest.fixture
def regression():
    torch.manual_seed(0)
    return Regression()


@pytest.mark.slow
@pytest.mark.parametrize("training", ["sgd", "adam"])
def test_each_shape_has_a_plan_and_all_share_parameters_and_the_optimizer(regression, training):
    twin = Twin(regression, training)
    step = planned(regression, batch(1), training=training)
    for number, plans in ((1, 1), (4, 2), (1, 2), (3, 3), (4, 3)):
        x, y = batch(number)
        loss, expected = step(x, y), twin.step(x, y)
        # Adam's two divisions are one here, so that the last bit may differ.
        assert torch.equal(loss, expected) if training == "sgd" else torch.allclose(loss, expected, rtol=1e-6)
        assert twin.is_as(regression, exact=training == "sgd")
        assert plans_of(step) == plans


def test_keywords_bind_by_name_in_any_order_and_split(regression):
    twin = Twin(regression)
    (x, y), example = batch(4), batch(4)
    step = planned(regression, {"y": example[1], "x": example[0]}, training="sgd")
    for args, kwargs in [((x, y), {}), ((), {"y": y, "x": x}), ((x,), {"y": y}), ((x, y, 1.0), {})]:
        assert torch.equal(step(*args, **kwargs), twin.step(x, y))
    assert plans_of(step) == 1
    assert twin.is_as(regression)


@pytest.mark.slow
def test_another_plain_value_is_another_plan(regression):
    twin = Twin(regression)
    x, y = batch(4)
    step = planned(regression, (x, y), training="sgd")
    for args in [(x, y, 3.0), (x, y), (x, y, 3.0), (x, y, -0.0), (x, y, 0.0)]:
        assert torch.equal(step(*args), twin.step(*args))
    assert plans_of(step) == 4
    assert twin.is_as(regression)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("x",), {}, "missing a required argument: 'y'; the inputs are x, y, scale=1.0"),
        (("x", "y", 1.0, "x"), {}, "too many positional arguments; the inputs are x, y, scale=1.0"),
        (("x", "y"), {"sclae": 2.0}, "got an unexpected keyword argument 'sclae'; the inputs are x, y, scale=1.0"),
        (("x", "y"), {"x": "x"}, "multiple values for argument 'x'; the inputs are x, y, scale=1.0"),
        (("x", "array"), {}, "input 'y' is a NumPy ndarray; give a tensor (torch.from_numpy, torch.as_tensor)"),
        (
            ("x", "sparse"),
            {},
            "input 'y' is a tensor of layout torch.sparse_coo, which is not supported; give to_dense()",
        ),
        (
            ("x", "object"),
            {},
            "input 'y' is a object; inputs are tensors, plain values, and tuples, lists and dicts of",
        ),
        (
            ("x", "leaf"),
            {},
            "input 'y' requires a gradient, which a training step gives to parameters alone; detach() it",
        ),
        (
            ("x", "point"),
            {},
            "input 'y' is a dataclass that PyTorch does not know as a container; call torch.utils._py",
        ),
    ],
)
def test_what_no_plan_stands_for_is_a_sentence_and_nothing_is_updated(regression, args, kwargs, message):
    x, y = batch(4)
    values = {
        "x": x,
        "y": y,
        "array": y.numpy(),
        "sparse": y.to_sparse(),
        "object": object(),
        "fake": FakeTensorMode().from_tensor(y),
        "leaf": y.clone().requires_grad_(),
        "point": Point(x, y),
    }
    step = planned(regression, (x, y), training="sgd")
    before = copy.deepcopy(regression.state_dict())
    with pytest.raises(UsageError) as caught:
        step(*[values.get(arg, arg) for arg in args], **{key: values.get(arg, arg) for key, arg in kwargs.items()})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(before[name], value) for name, value in regression.state_dict().items())


@dataclasses.dataclass
class Point:
    x: torch.Tensor
    y: torch.Tensor


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: (x[:1], y[:1]), "expected x: float32[4, 8], got float32[1, 8]; it was made with dynamic=False"),
        (lambda x, y: (x, y.double()), "expected y: float32[4, 8], got float64[4, 8]; "),
        (lambda x, y: (x, y.to("meta")), "expected y: float32[4, 8], got float32[4, 8] on meta; "),
        (
            lambda x, y: (x, torch.randn(8, 4).t()),
            r"expected y: float32[4, 8] of strides [8, 1], with memory of its ow",
        ),
        (
            lambda x, y: (x, x),
            "expected y: float32[4, 8] of strides [8, 1], with memory of its own, got float32[4, 8] o",
        ),
        (lambda x, y: (x, y, 3.0), "expected no scale, got 3.0; "),
        (lambda x, y: (x, [y, y]), "expected y: float32[4, 8], got nothing; "),
        (lambda x, y: (x, 3), "expected y: float32[4, 8], got 3; "),
        (lambda x, y: (x, None), "expected y: float32[4, 8], got None; "),
    ],
)
def test_dynamic_false_refuses_another_kind_of_call(regression, call, message):
    x, y = batch(4)
    step = planned(regression, (x, y), training="sgd", dynamic=False)
    with pytest.raises(UsageError) as caught:
        step(*call(x, y))
    assert str(caught.value).startswith(message)
    assert plans_of(step) == 1
    step(*batch(4))


@pytest.mark.slow
def test_over_the_limit_of_plans_is_a_sentence(regression):
    step = planned(regression, batch(1), plan_limit=2)
    step(*batch(2))
    with pytest.raises(
        UsageError, match=r"^expected x: float32\[2, 8\], got float32\[3, 8\]; there are 2 plans, .* limit$"
    ):
        step(*batch(3))
    with torch.no_grad():
        for number in (1, 2):
            x, y = batch(number)
            assert torch.equal(step(x, y), regression(x, y))


def test_a_kind_of_call_that_cannot_be_planned_is_a_sentence_and_the_others_go_on(regression):
    step = planned(regression, batch(4), training="sgd")
    for bad, message in [
        (
            batch(4, 7),
            r"^expected x: float32\[4, 8\], got float32\[4, 7\]; no plan can be made for that: .*must have same",
        ),
        (
            batch(4, device="meta"),
            r"^expected x: .*, got float32\[4, 8\] on meta; no plan can be made for that: .*device",
        ),
    ]:
        with pytest.raises(ProgramError, match=message) as caught:
            step(*bad)
        assert caught.value.__suppress_context__
    twin, (x, y) = Twin(regression), batch(4)
    assert torch.equal(step(x, y), twin.step(x, y))
    assert twin.is_as(regression)


# --------------------------------------------------------------------------------------------------- the model


def replace_weight(model):
    model.two.weight = nn.Parameter(torch.randn(8, 16))


def load(model):
    model.load_state_dict({key: value + 1 for key, value in model.state_dict().items()}, assign=True)


def replace_layer(model):
    model.one = nn.Linear(8, 16, bias=False)


def tie(model):
    model.two.weight = model.one.weight = nn.Parameter(torch.randn(8, 8))
    model.one.bias = nn.Parameter(torch.zeros(8))


def swap_data(model):
    model.one.weight.data = torch.randn(16, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [replace_weight, load, replace_layer, tie, swap_data], ids=lambda change: change.__name__
)
@pytest.mark.parametrize("training", ["none", "sgd"])
def test_plans_run_on_the_parameters_that_the_model_has_now(regression, change, training):
    x, y = batch(4)
    step = planned(regression, (x, y), training=training)
    step(x, y)
    change(regression)
    twin = Twin(regression)
    if training == "none":
        assert torch.equal(step(x, y), twin.model(x, y))
    else:
        assert torch.equal(step(x, y), twin.step(x, y))
        assert twin.is_as(regression)
    assert {id(value) for value in step.parameters()} == {id(value) for value in regression.parameters()}


@pytest.mark.parametrize("training", ["none", pytest.param("adam", marks=pytest.mark.slow)])
def test_plans_hold_no_parameter_that_the_model_has_no_more(regression, training):
    x, y = batch(4)
    step = planned(regression, (x, y), training=training)
    step(x, y)
    old = weakref.ref(regression.one.weight)
    regression.one.weight = nn.Parameter(torch.randn(16, 8))
    step(x, y)
    gc.collect()
    assert old() is None


@pytest.mark.slow
@pytest.mark.parametrize("training", ["none", "sgd", "adam"])
def test_a_model_moved_to_another_dtype_and_back(regression, training):
    step = planned(regression, batch(4), training=training)
    for dtype in (torch.float64, torch.float32, torch.float64):
        step.to(dtype)
        twin = Twin(regression, training if training != "none" else "sgd")
        x, y = batch(4, dtype=dtype)
        if training == "adam":
            before = copy.deepcopy(regression.state_dict())
            step(x, y)
            assert all(not torch.equal(before[name], value) for name, value in regression.state_dict().items())
        else:
            expected = twin.model(x, y) if training == "none" else twin.step(x, y)
            assert torch.equal(step(x, y), expected)
            assert twin.is_as(regression)
    assert plans_of(step) == 2


@pytest.mark.slow
def test_the_state_of_adam_follows_its_parameters(regression):
    twin = Twin(regression, "adam")
    step = planned(regression, batch(4), training="adam")
    for dtype in (torch.float32, torch.float64):
        regression.to(dtype)
        twin.model.to(dtype)
        for state in twin.optimizer.state.values():
            state.update({name: value.to(dtype) for name, value in state.items() if name != "step"})
        for _ in range(2):
            x, y = batch(4, dtype=dtype)
            step(x, y)
            twin.step(x, y)
        assert twin.is_as(regression, exact=False)


def test_a_frozen_parameter_is_not_updated(regression):
    step = planned(regression, batch(4), training="sgd")
    regression.one.requires_grad_(False)
    twin, (x, y) = Twin(regression), batch(4)
    frozen = regression.one.weight.clone()
    assert torch.equal(step(x, y), twin.step(x, y))
    assert twin.is_as(regression)
    assert torch.equal(regression.one.weight, frozen)


@pytest.mark.slow
def test_adam_refuses_parameters_that_it_has_updated_more_or_less_often(regression):
    twin = Twin(regression, "adam")
    step = planned(regression, batch(4), training="adam")
    for requires, steps in ((True, 2), (False, 2)):
        regression.one.requires_grad_(requires)
        twin.model.one.requires_grad_(requires)
        for _ in range(steps):
            x, y = batch(4)
            step(x, y)
            twin.step(x, y)
    assert twin.is_as(regression, exact=False)
    regression.one.requires_grad_(True)
    before = copy.deepcopy(regression.state_dict())
    with pytest.raises(UsageError, match=r"adam has updated '.*one.* 2 times and '.*two.* 4 times, and counts"):
        step(*batch(4))
    assert all(torch.equal(before[name], value) for name, value in regression.state_dict().items())


class Config:
    """Settings as models of libraries hold them."""

    def __init__(self):
        self.heads, self.itself = {"scale": 1.0, "skip": {1, 2}}, self


class Modes(nn.Module):
    """Has what differs between training and evaluation, plain attributes, a constant, and what it writes itself."""

    def __init__(self):
        super().__init__()
        self.config = self.again = Config()
        self.nested, self.settings = [1.0, (1.0, {"bias": 0.0})], types.SimpleNamespace(sign=1)
        self.finish = functools.partial(torch.mul, other=1.0)
        self.layer, self.dropout, self.norm = nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8)
        self.scale, self.powers, self.mask, self.activation = 2.0, [1, 2], torch.ones(8), torch.relu
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.last = x
        y = self.activation(self.norm(self.dropout(self.layer(x)))) * self.scale * self.mask
        config = self.config.heads["scale"] * len(self.config.heads["skip"])
        y = sum(y**power for power in self.powers) * config * self.settings.sign
        return self.finish(y + self.nested[1][1]["bias"])


@pytest.fixture
def modes():
    torch.manual_seed(0)
    return Modes()


def same_results(step, model, *inputs):
    """Whether a forward program gives what the model gives, buffers included, from the same random numbers."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = twin(*copy.deepcopy(inputs))
        torch.manual_seed(1)
        found = step(*inputs)
    buffers = zip(model.buffers(), twin.buffers(), strict=True)
    return torch.equal(found, expected) and all(torch.equal(one, other) for one, other in buffers)


def set_rate(model):
    model.dropout.p = 0.1


def set_scale(model):
    model.scale = 3.0


def append_power(model):
    model.powers.append(3)


def set_mask(model):
    model.mask = torch.zeros(8)


def set_activation(model):
    model.activation = torch.tanh


def set_config(model):
    model.config.heads["scale"] = 3.0


def add_to_config(model):
    model.again.heads["skip"].add(3)


def set_setting(model):
    model.settings.sign = -1


def set_nested(model):
    model.nested[1][1]["bias"] = 1.0


def set_partial(model):
    model.finish = functools.partial(torch.mul, other=2.0)


def add_hook(model):
    model.layer.register_forward_hook(lambda module, args, output: output + 1)


def add_buffer(model):
    model.register_buffer("more", torch.ones(1))


ATTRIBUTES = [set_scale, append_power, set_mask, set_activation, set_config, add_to_config, set_setting]
CHANGES = [nn.Module.eval, set_rate, *ATTRIBUTES, set_nested, set_partial, add_hook]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Modes sets")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_the_model_is_seen(modes, change):
    x = torch.randn(4, 8)
    forward = planned(modes, x)
    assert same_results(forward, modes, x)
    assert plans_of(forward) == 1
    change(modes)
    assert same_results(forward, modes, x)
    assert plans_of(forward) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Modes sets")
@pytest.mark.parametrize("change", [*CHANGES, add_buffer], ids=lambda change: change.__name__)
def test_dynamic_false_refuses_a_changed_model(modes, change):
    step = planned(modes, torch.randn(4, 8), training="sgd", dynamic=False)
    change(modes)
    with pytest.raises(UsageError, match=r"^expected .*; it was made with dynamic=False$"):
        step(torch.randn(4, 8))


@pytest.mark.slow
def test_what_the_model_writes_itself_is_told_and_restored_and_no_fact(modes):
    with pytest.warns(UserWarning, match="Modes sets calls, last as it runs, which its plans do not"):
        forward = planned(modes, torch.randn(4, 8))
    assert modes.calls == 0
    assert not hasattr(modes, "last")
    modes(torch.randn(4, 8))
    assert same_results(forward, modes, torch.randn(4, 8))
    assert plans_of(forward) == 1


class Remembering(nn.Module):
    """Writes into a dict, a list and an object that it has."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.seen, self.lengths, self.settings = {}, [], types.SimpleNamespace(calls=0, scale=1.0)

    def forward(self, x):
        y = self.layer(x) * self.settings.scale
        self.seen["last"] = y.detach()
        self.lengths.append(len(x))
        self.settings.calls += 1
        return y


@pytest.mark.slow
def test_what_the_model_writes_into_what_it_holds_is_restored_and_no_fact():
    model = Remembering()
    written = r"Remembering sets lengths, seen, settings.calls as it runs"
    with pytest.warns(UserWarning, match=written):
        forward = planned(model, torch.randn(4, 8))
    assert (model.seen, model.lengths, vars(model.settings)) == ({}, [], {"calls": 0, "scale": 1.0})
    for rows in (4, 2, 4, 2):
        assert same_results(forward, model, torch.randn(rows, 8))
        model(torch.randn(4, 8))
    assert plans_of(forward) == 2
    model.settings.scale = 2.0
    assert same_results(forward, model, torch.randn(4, 8))


@pytest.mark.slow
def test_the_mode_is_the_models(modes):
    modes.layer.eval()
    modes.calls = torch.zeros(())  # no plain value
    with pytest.warns(UserWarning, match="Modes sets"):
        forward = planned(modes, torch.randn(4, 8))
    assert [module.training for module in modes.modules()] == [True, False, True, True]
    assert forward.training
    assert forward.eval() is forward
    assert not forward.training
    assert not any(module.training for module in modes.modules())
    assert same_results(forward, modes, torch.randn(4, 8))


def test_a_parameter_that_is_not_initialised_is_a_sentence():
    with pytest.raises(UsageError, match=r"^parameter 'weight' is not initialised yet; call the model once before$"):
        planned(nn.LazyLinear(4), torch.randn(2, 4))


# --------------------------------------------------------------------------------------------------- the inputs


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transposed", "expanded", "sliced", "flipped"])
@pytest.mark.parametrize("training", ["none", "sgd"])
def test_inputs_of_other_strides(regression, kind, training):
    x, y = batch(4)
    step = planned(regression, (x, y), training=training)
    other = {
        "transposed": lambda: torch.randn(8, 4).t(),
        "expanded": lambda: torch.randn(1, 8).expand(4, 8),
        "sliced": lambda: torch.randn(8, 16)[::2, ::2],
        "flipped": lambda: torch.randn(4, 8).flip(0),
    }[kind]()
    twin = Twin(regression)
    expected = twin.step(other, y) if training == "sgd" else twin.model(other, y)
    assert torch.equal(step(other, y), expected)
    assert twin.is_as(regression)
    assert plans_of(step) == (1 if kind == "flipped" else 2)


def test_strides_without_a_step_are_the_same_call(regression):
    step = planned(regression, batch(1))
    x, y = batch(1)
    step(x.as_strided((1, 8), (99, 1)), y)
    step(torch.randn(3, 8)[1:2], y)
    assert plans_of(step) == 1


@pytest.mark.slow
@pytest.mark.parametrize("training", ["none", "sgd"])
@pytest.mark.parametrize("example", ["apart", "same"])
def test_inputs_that_share_memory(example, training):
    long = torch.randn(8)

    def calls():
        memory = long.clone()
        yield memory[:4], memory[4:].clone()
        yield memory[:4], memory[4:]
        memory = long.clone()
        yield memory[:4], memory[2:6]
        memory = long.clone()
        yield memory[:4], memory[:4]
        memory = long[:4].clone()
        yield memory, memory

    torch.manual_seed(0)
    model, one = Product(), torch.randn(4)
    twin = Twin(model)
    step = planned(model, (one, one if example == "same" else torch.randn(4)), training=training)
    for (x, y), copies in zip(calls(), calls(), strict=True):
        expected = twin.step(*copies) if training == "sgd" else twin.model(*copies).detach()
        assert torch.equal(step(x, y), expected)
        assert torch.equal(x, copies[0])
        assert torch.equal(y, copies[1])
        assert twin.is_as(model)
    assert plans_of(step) == 4


def test_memory_shared_behind_pytorchs_back_is_refused():
    array = np.zeros(4, dtype=np.float32)
    step = planned(Product(), (torch.randn(4), torch.randn(4)))
    with pytest.raises(
        UsageError, match=r"^inputs 'x' and 'y' share memory, which PyTorch does not know; clone\(\) one$"
    ):
        step(torch.from_numpy(array), torch.from_numpy(array))
    step(torch.from_numpy(array[:2]).repeat(2), torch.from_numpy(array))


class Pair(nn.Module):
    """Takes containers, and what is neither tensor nor container."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))

    def forward(self, pair, *rest, mode="sum", mask=None, options=None, **more):
        y = self.weight * pair[0] * more["last"] + sum(rest)
        if mask is not None:
            y = y * mask
        if options and options["negate"]:
            y = -y
        return {"sum": y.sum, "mean": y.mean, "max": y.amax}[mode]() + pair[1].sum()


CALLS = [
    lambda v: (([v[0], v[1]],), {"last": v[2]}),
    lambda v: (([v[0], v[1]], v[3], v[4]), {"last": v[2]}),
    lambda v: (((v[0], v[1]),), {"last": v[2], "mode": "mean"}),
    lambda v: (([v[0], v[1]],), {"last": v[2], "mask": v[3]}),
    lambda v: (([v[0], v[1]],), {"last": v[2], "mask": None, "mode": "sum"}),
    lambda v: (([v[0], v[1]], 3), {"last": v[2], "options": {"negate": True, "deep": [v[3], None]}}),
    lambda v: (([v[0], v[1]], 3), {"last": v[2], "options": {"negate": False, "deep": [v[3], None]}}),
]


@pytest.mark.parametrize("training", ["none", "sgd"])
@pytest.mark.parametrize("first", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_nested_and_plain_inputs(first, training):
    model = Pair()
    twin = Twin(model)
    args, kwargs = CALLS[first](torch.randn(5, 3))
    step = planned(model, {"pair": args[0], **kwargs}, training=training)
    for call in CALLS:
        args, kwargs = call(torch.randn(5, 3).unbind())
        expected = twin.step(*args, **kwargs) if training == "sgd" else twin.model(*args, **kwargs).detach()
        assert torch.allclose(step(*args, **kwargs), expected, rtol=1e-6)
        assert twin.is_as(model, exact=False)
    assert plans_of(step) == 6


@dataclasses.dataclass
class Batch:
    one: torch.Tensor
    two: torch.Tensor
    name: str = "batch"


class OfBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, batch):
        return (self.layer(batch.one) - batch.two).abs().mean() * len(batch.name)


@pytest.fixture(scope="module")
def _registered():
    torch.utils._pytree.register_dataclass(Batch)


@pytest.mark.slow
@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("training", ["none", "sgd"])
def test_a_registered_dataclass_is_a_container(training):
    torch.manual_seed(0)
    model = OfBatch()
    step, twin = planned(model, (Batch(*batch(4)),), training=training), Twin(model)
    for given in (Batch(*batch(4)), Batch(*batch(2)), Batch(*batch(4), name="other")):
        expected = twin.step(given) if training == "sgd" else twin.model(given).detach()
        assert torch.equal(step(given), expected)
    assert plans_of(step) == 3
    assert twin.is_as(model)
    with pytest.raises(ProgramError, match=r"expected batch.one: float32\[4, 8\], got float32\[4, 3\]; no plan can be"):
        step(Batch(torch.randn(4, 3), torch.randn(4, 3)))


# -------------------------------------------------------------------------------------------- PyTorch's settings


@pytest.mark.slow
@pytest.mark.parametrize("training", ["none", "sgd"])
def test_autocast_is_what_it_was_traced_in(regression, training):
    x, y = batch(4)
    step = planned(regression, (x, y), training=training)
    for enabled in (True, False, True):
        twin = Twin(regression)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            expected = twin.step(x, y) if training == "sgd" else twin.model(x, y).detach()
            found = step(x, y)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
        assert twin.is_as(regression)
    assert plans_of(step) == 2


def test_a_plan_made_in_autocast_is_refused_outside(regression):
    with torch.autocast("cpu", torch.bfloat16):
        step = planned(regression, batch(4), dynamic=False)
        step(*batch(4))
    with pytest.raises(UsageError, match=r"^expected autocast on cpu: torch\.bfloat16, got off; it was made with"):
        step(*batch(4))


class Zeros(nn.Module):
    def forward(self, x):
        return x.sum() + torch.zeros(3)


def test_the_default_dtype_is_what_it_was_traced_in():
    forward = planned(Zeros(), torch.ones(3, dtype=torch.int64))
    try:
        torch.set_default_dtype(torch.float64)
        assert forward(torch.ones(3, dtype=torch.int64)).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert forward(torch.ones(3, dtype=torch.int64)).dtype == torch.float32
    assert plans_of(forward) == 2


@pytest.mark.slow
def test_autograd_and_inference_mode_are_none_of_its_business(regression):
    forward = planned(regression, batch(1))
    assert not forward(*batch(1)).requires_grad
    with torch.inference_mode():
        inputs = batch(2)
        step = planned(regression, batch(1), training="sgd")
        assert torch.equal(forward(*inputs), regression(*inputs))
    twin = Twin(regression)
    normal = [value.clone() for value in inputs]
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            loss = step(*inputs)
        assert torch.equal(loss, twin.step(*normal))
        assert twin.is_as(regression)
        assert not loss.requires_grad
    assert all(parameter.requires_grad for parameter in regression.parameters())
    assert (plans_of(forward), plans_of(step)) == (2, 2)


def test_an_input_that_requires_a_gradient_is_refused_where_there_would_be_one(regression):
    forward, (x, y) = planned(regression, batch(4)), batch(4)
    with pytest.raises(UsageError, match=r"^input 'x' requires a gradient, which a forward program"):
        forward(x.requires_grad_(), y)
    with torch.no_grad():
        assert torch.equal(forward(x, y), regression(x, y))
