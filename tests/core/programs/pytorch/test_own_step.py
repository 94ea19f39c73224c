"""Steps of one's own: 20 steps are bitwise those of eager execution, whatever the step's Python does."""

import copy
import functools
import random
import re
import signal
import threading
import warnings
import weakref
from collections import Counter
from contextlib import nullcontext
from unittest.mock import Mock

import numpy as np
import pytest
import schedopt
import torch
from models import torch_models
from models.seeds import mostly_slow
from schedopt import ProgramError, ScheduleError, UsageError
from schedopt.core.base.speed import without_gc
from schedopt.core.programs.pytorch import own_step, torch_internals
from schedopt.core.programs.pytorch.program import as_call
from schedopt.core.programs.pytorch.recorder import RecordedOp, Segment
from schedopt.core.programs.pytorch.run import peak_of
from schedopt.core.programs.pytorch.tracing import RECORDING
from torch import nn, optim
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.ao.quantization import get_default_qat_qconfig, prepare_qat
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

MODELS = {
    name: getattr(torch_models, name)
    for name in ("linear", "convolutions", "recurrent", "attention", "branches_in_training")
}
WAYS = [
    ("plain", {}, "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax ASGD Rprop"),
    ("foreach", {"foreach": True}, "SGD Adam AdamW RMSprop Adagrad Adadelta NAdam RAdam Adamax"),
    ("fused", {"fused": True}, "SGD Adam AdamW Adagrad"),
]
OPTIMIZERS = {
    f"{name.lower()}-{way}": functools.partial(getattr(optim, name), lr=0.01, **options)
    for way, options, names in WAYS
    for name in names.split()
}
OPTIMIZERS |= {
    "sgd-momentum": functools.partial(optim.SGD, lr=0.01, momentum=0.9, dampening=0.1, weight_decay=0.1),
    "sgd-nesterov": functools.partial(optim.SGD, lr=0.01, momentum=0.9, nesterov=True),
    "adam-amsgrad": functools.partial(optim.Adam, lr=0.01, amsgrad=True, weight_decay=0.1, maximize=True),
    "adam-tensor-rate": lambda parameters: optim.Adam(parameters, lr=torch.tensor(0.01)),
    "rmsprop-centered": functools.partial(optim.RMSprop, lr=0.01, centered=True, momentum=0.9),
}


class Trained:
    """A model with its optimizer, and steps that refer to them."""

    def __init__(self, make=torch_models.linear, optimizer=OPTIMIZERS["adamw-plain"]):
        model, inputs = make()
        self.model = model.train()
        self.args, self.kwargs = as_call(inputs)
        self.optimizer = optimizer(list(model.parameters()))
        self.scheduler = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 15)
        self.calls = 0

    def loss(self, *args, **kwargs):
        outputs = pytree.tree_leaves(self.model(*args, **kwargs))
        return sum(value.float().square().mean() for value in outputs if value.is_floating_point())

    def step(self, *args, **kwargs):
        self.calls += 1
        self.optimizer.zero_grad()
        loss = self.loss(*args, **kwargs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.scheduler.step()
        return loss

    def state(self):
        """Return all that a step changes."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        states = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        return [*states, gradients, self.calls]


def assert_same(one, other):
    """Check that two nests of values are equal, bit for bit, and of plain types."""
    ones, structure = pytree.tree_flatten(one)
    others, other_structure = pytree.tree_flatten(other)
    assert structure == other_structure
    for a, b in zip(ones, others, strict=True):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype
            assert torch.equal(a.detach().nan_to_num(7), b.detach().nan_to_num(7))
        else:
            assert a == b or a != a


def optimized(step, inputs, **options):
    return schedopt.optimize(step, inputs, evaluations=5, **options)


def check(eager, mine, batches, step=None):
    """Check that steps on batches change and return the same, with the same random numbers; return the planned step."""
    step = step or (lambda trained: trained.step)
    before = copy.deepcopy(mine.state())
    planned = optimized(step(mine), batches[0])
    assert_same(before, mine.state())
    for number, batch in enumerate(batches):
        args, kwargs = as_call(batch)
        torch.manual_seed(number)
        wanted = step(eager)(*args, **kwargs)
        states = torch.get_rng_state()
        torch.manual_seed(number)
        found = planned(*args, **kwargs)
        assert torch.equal(torch.get_rng_state(), states)
        assert_same(found, wanted)
        assert_same(eager.state(), mine.state())
    return planned


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "optimizer"), [(list(MODELS)[number % len(MODELS)], name) for number, name in enumerate(OPTIMIZERS)]
)
def test_twenty_steps_with_each_optimizer_are_bitwise_those_of_eager(model, optimizer):
    eager, mine = (Trained(MODELS[model], OPTIMIZERS[optimizer]) for _ in range(2))
    check(eager, mine, [eager.kwargs or eager.args] * 20)


def batches_of(count, rows=3):
    generator = torch.Generator().manual_seed(4)
    return [(torch.randn(rows, 4, generator=generator),) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of what will move
@pytest.mark.parametrize("version", [0, 1])
def test_observers_per_channel_resize_their_buffers(version):
    """By `resize_` in each step, to a new shape in the first one alone; or within the fused op of the first step."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net.qconfig = get_default_qat_qconfig("x86", version=version)
    eager, mine = (Trained(lambda: (prepare_qat(net), torch.ones(3, 4))) for _ in range(2))
    check(eager, mine, batches_of(4))


class Scaled(Trained):
    """A step under autocast, whose loss is scaled; some gradients are infinite."""

    def __init__(self, optimizer):
        super().__init__(optimizer=optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

    def step(self, x):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.loss(x)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def state(self):
        return [*super().state(), self.scaler.state_dict()]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", mostly_slow(["adamw-plain", "adamw-fused"], ["adamw-plain"]))
def test_autocast_and_a_gradient_scaler_which_skips_infinite_steps(optimizer):
    batches = batches_of(12)
    batches[2] = batches[7] = (torch.full((3, 4), torch.inf),)
    eager, mine = (Scaled(OPTIMIZERS[optimizer]) for _ in range(2))
    check(eager, mine, batches)
    assert mine.optimizer.state[mine.model.bias]["step"] == 10


def accumulating(trained):
    """A step that updates every third time; its number of calls is Python's."""

    def step(x):
        trained.calls += 1
        loss = trained.loss(x) / 3
        loss.backward()
        if trained.calls % 3 == 0:
            trained.optimizer.step()
            trained.optimizer.zero_grad(set_to_none=False)
        return loss

    return step


def micro_batches(trained):
    def step(x):
        for part in x.split(1):
            trained.loss(part).backward()
        trained.optimizer.step()
        trained.optimizer.zero_grad()

    return step


def reading(trained):
    """A step that branches on its loss, and edits learning rates by hand."""
    losses = []

    def step(x):
        trained.optimizer.zero_grad()
        loss = trained.loss(x)
        losses.append(loss.item())
        if losses[-1] > sum(losses) / len(losses):
            loss = loss * 2
        loss.backward()
        trained.optimizer.step()
        for group in trained.optimizer.param_groups:
            group["lr"] = 0.1 / len(losses)
        return {"loss": loss, "losses": list(losses), "mean": np.mean(losses)}

    return step


def masked(trained):
    """A step with a size that depends on values."""

    def step(x):
        trained.optimizer.zero_grad()
        outputs = trained.model(x)
        loss = outputs[outputs > 0].square().sum()
        loss.backward()
        trained.optimizer.step()
        return loss

    return step


def with_dropout_checkpointed(trained):
    """A step that draws its random numbers again in the backward, from a state that it has kept."""

    def block(x):
        return nn.functional.dropout(trained.model(nn.functional.dropout(x, 0.5)), 0.5)

    def step(x):
        trained.optimizer.zero_grad()
        loss = sum(checkpoint(block, x * scale, use_reentrant=False).square().mean() for scale in (1, 2))
        loss.backward()
        trained.optimizer.step()
        return loss

    return step


def averaging(trained):
    """A step that keeps averages of parameters and of the loss, and a penalty on gradients."""
    average = None

    def step(x):
        nonlocal average
        trained.optimizer.zero_grad()
        x = x.clone().requires_grad_()
        loss = trained.loss(x)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.square().sum()).backward()
        trained.optimizer.step()
        average = loss.detach() if average is None else average.lerp(loss.detach(), 0.1)
        return average

    return step


def caching(trained):
    """A step that writes a value with a gradient into a tensor that stays."""
    cache = torch.zeros_like(trained.model(*batches_of(1)[0])).detach()

    def step(x):
        cache[:1] = trained.model(x)[:1]
        return cache.detach().clone()

    return step


def with_kept_gradients(trained):
    """A step that keeps the gradient of what it makes, and returns both."""
    kept = []

    def step(x):
        trained.optimizer.zero_grad()
        made = trained.model(x)
        made.retain_grad()
        made.square().sum().backward()
        trained.optimizer.step()
        kept.append(made)
        return made, *(one.grad for one in kept[-2:])

    return step


def with_closure(trained):
    optimizer = optim.LBFGS(trained.model.parameters(), max_iter=3)

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = trained.loss(x)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    mostly_slow(
        [
            *(accumulating, micro_batches, reading, masked, with_dropout_checkpointed, averaging),
            *(caching, with_kept_gradients, with_closure),
        ],
        [accumulating, masked, with_closure],
    ),
    ids=lambda step: step.__name__,
)
@pytest.mark.filterwarnings("ignore:step. 8 sequences")
def test_whatever_a_step_does_is_what_it_does_in_eager(step):
    eager, mine = Trained(), Trained()
    steps = {id(eager): step(eager), id(mine): step(mine)}
    check(eager, mine, batches_of(9), lambda trained: steps[id(trained)])


@pytest.mark.slow
def test_each_shape_and_dtype_has_a_plan_of_its_own():
    eager, mine = Trained(), Trained()
    check(eager, mine, [(x[: 1 + number % 3],) for number, (x,) in enumerate(batches_of(9))])
    for trained in (eager, mine):
        trained.model.double()
        trained.optimizer = optim.SGD(trained.model.parameters(), 0.1)
    check(eager, mine, [(x.double(),) for (x,) in batches_of(2)])


@pytest.mark.slow
def test_the_default_dtype_is_that_of_the_call():
    planned = optimized(lambda x: torch.zeros(3) + x, torch.ones(3))
    assert planned(torch.ones(3)).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert planned(torch.ones(3, dtype=torch.float32)).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_import_takes_a_step_from_the_second_on():
    trained = Trained()
    before = copy.deepcopy(trained.state())
    graph = schedopt.import_model(trained.step, trained.args)
    assert_same(trained.state(), before)
    roles = {resident.role for resident in graph.annotations.residents}
    assert roles == {"parameter", "input", "state"}
    assert set(graph.annotations.phases) == {"forward", "backward", "update"}
    with torch.device("meta"):
        empty = torch.ones(4, requires_grad=True)
        assert schedopt.import_model(lambda x: (empty * x).sum().backward(), torch.ones(4)).num_ops
    with pytest.raises(ProgramError, match=r"no one graph stands for the step at test_own_step.py:\d+: it reads a"):
        schedopt.import_model(reading(trained), trained.args)


@pytest.mark.slow
def test_saving_and_resuming():
    eager, mine = Trained(), Trained()
    planned = optimized(mine.step, eager.args)
    for _ in range(3):
        eager.step(*eager.args)
        planned(*eager.args)
    kept = copy.deepcopy([mine.model.state_dict(), mine.optimizer.state_dict(), mine.scheduler.state_dict()])
    planned(*eager.args)
    for trained in (eager, mine):
        for thing, state in zip((trained.model, trained.optimizer, trained.scheduler), kept, strict=True):
            thing.load_state_dict(copy.deepcopy(state))
        trained.optimizer.param_groups[0]["weight_decay"] = 0.3
    for _ in range(3):
        assert_same(planned(*eager.args), eager.step(*eager.args))
    assert_same(eager.state()[:-1], mine.state()[:-1])


@pytest.mark.slow
def test_a_plan_is_reused_whatever_the_numbers():
    trained, notes = Trained(), []
    planned = optimized(trained.step, trained.args)
    for _ in range(6):
        planned(*trained.args)
        notes.append(repr(planned))
    assert set(notes) == {"PlannedStep(step, 2 plans)"}, "one for the first step, which makes the optimizer's state"


COUNT = 0


@pytest.mark.slow
def test_trying_a_step_changes_nothing():
    trained = Trained()
    trained.step(*trained.args)
    kept, numbers = [trained.model.weight.grad], iter(range(9))
    cache, whole = torch.zeros_like(trained.model(*trained.args)[0]).detach(), torch.zeros(2, 99)
    view = whole[0, : len(cache)]

    def step(x, more=kept):
        global COUNT
        COUNT += 1
        next(numbers)
        more.append(random.random() + np.random.rand())  # noqa: NPY002 - what a step may draw from
        trained.model.extra = x
        trained.model.register_buffer("late", torch.ones(1))
        trained.model.bias.requires_grad_(False)
        cache[:] = view.copy_(trained.model(x)[0])
        return trained.step(x)

    def drawn():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), COUNT  # noqa: NPY002

    states = drawn()
    before, modules = copy.deepcopy(trained.state()), dict(vars(trained.model))
    versions = [parameter._version for parameter in trained.model.parameters()]
    optimized(step, trained.args)
    assert_same(trained.state(), before)
    assert kept == [trained.model.weight.grad]
    assert dict(vars(trained.model)) == modules
    assert trained.model.bias.requires_grad
    assert not (cache.requires_grad or view.requires_grad or whole.any() or cache.any())
    assert view.data_ptr() == whole.data_ptr()
    assert [parameter._version for parameter in trained.model.parameters()] == versions
    assert drawn() == states


@pytest.mark.slow
def test_gradients_that_are_dropped_after_the_update_are_freed_in_its_midst():
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
        optimizer = optim.SGD(model.parameters(), 0.01)

        def step(x):
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step, (torch.randn(2, 256),)

    eager, inputs = make()
    planned = schedopt.optimize(make()[0], inputs, evaluations=50)
    eager(*inputs)
    planned(*inputs)
    _, before = peak_of(lambda: eager(*inputs), "cpu")
    _, after = peak_of(lambda: planned(*inputs), "cpu")
    assert after < 0.5 * before


@pytest.mark.slow
def test_an_error_of_the_steps_own_comes_after_the_ops_before_it():
    eager, mine = Trained(), Trained()

    def failing(trained, x):
        loss = trained.step(x)
        if trained.calls == 2:
            loss.mul_(2)
            raise KeyError("no such batch")
        return loss

    planned = optimized(functools.partial(failing, mine), eager.args)
    for _ in range(3):
        outcomes = []
        for call in (functools.partial(failing, eager), planned):
            try:
                outcomes.append(call(*eager.args))
            except KeyError as error:
                outcomes.append(str(error))
        assert_same(*outcomes)
        assert planned._plans <= 2, "what an error cuts off is not planned"
        assert_same(eager.state(), mine.state())


@pytest.mark.parametrize("fails", [False, True])
def test_after_an_op_fails_the_next_step_goes_on(fails):
    model = nn.EmbeddingBag(5, 3)
    optimizer = optim.Adam(model.parameters())

    def step(tokens, fails=False):
        optimizer.zero_grad()
        loss = model(tokens).square().mean()
        loss.backward()
        optimizer.step()
        if fails:
            raise ValueError("comes after the op")
        return loss

    tokens = torch.tensor([[1, 2], [3, 4]])
    planned = optimized(step, tokens)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises((IndexError, RuntimeError)):
        planned(tokens + 7, fails)
    assert_same(before, model.state_dict())
    assert not optimizer.state
    first = planned(tokens)
    assert planned(tokens) < first
    assert optimizer.state[model.weight]["step"] == 2


@pytest.mark.slow
def test_too_many_sequences_of_ops_run_in_program_order_with_one_warning():
    eager, mine = Trained(), Trained()
    planned = optimized(mine.step, eager.args, plan_limit=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for (x,) in batches_of(4):
            for rows in (1, 2, 3):
                assert_same(planned(x[:rows]), eager.step(x[:rows]))
    assert_same(eager.state(), mine.state())
    assert [str(w.message) for w in caught if "plan_limit" in str(w.message)] == [
        "step: 2 sequences of ops have a plan, and plan_limit=2 allows no more; further ones run in program order: "
        "give inputs of fewer shapes, or a higher limit"
    ]


@pytest.mark.slow
def test_other_inputs_are_refused_where_that_is_asked_for():
    trained = Trained()
    planned = optimized(trained.step, trained.args, dynamic=False)
    with pytest.raises(UsageError, match=r"expected .*float32\[3, 4\], got float32\[2, 4\]; .*dynamic=False"):
        planned(torch.ones(2, 4))
    assert trained.calls == 0


distributed = type("DistributedDataParallel", (nn.Linear,), {})(4, 4)


def looks_up(x, table=nn.Embedding(9, 2, sparse=True)):
    table(x.long()).sum().backward()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda x: (x + 1).resize_(2), "changes the shape of a tensor in place"),
        (lambda x: x.to_sparse() * 2, "sparse"),
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), r"py:\d+: cond, .*branch and loop"),
        (lambda x: x.no_such_method(), r"step cannot be recorded at test_own_step.py:\d+: .*no_such_method"),
        (
            lambda x: x + torch.randn(x.shape, generator=torch.Generator()),
            r"test_own_step\.py:\d+: a torch\.Generator .* cannot be recorded; use torch.manual_seed",
        ),
        (looks_up, r"test_own_step\.py:\d+: a tensor of layout torch\.sparse_coo .* sparse=False"),
        (lambda x, lazy=nn.LazyLinear(3): lazy(x), "is not initialised yet; call the model once before"),
        (lambda x, net=distributed: net(x), "talks to other processes, which no plan holds; plan its module"),
    ],
)
def test_what_cannot_be_recorded_is_said_in_a_sentence(step, message):
    with pytest.raises(ProgramError, match=message) as caught:
        optimized(step, torch.ones(3, 4))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_values_that_python_reads_are_there():
    weight = torch.zeros(2)

    def step(x):
        doubled = x * 2
        read = [doubled.tolist(), doubled.numpy().sum(), repr(doubled + 1), f"{doubled.sum():.1f}"]
        for value in (weight.tolist, weight.numpy, weight.detach().tolist, lambda: np.asarray(weight)):
            weight.add_(x)
            read.append(list(value()))
        return read

    planned = optimized(step, torch.ones(2))
    assert weight.tolist() == [0, 0]
    assert planned(torch.ones(2)) == [[2, 2], 4, "tensor([3., 3.])", "4.0", [1, 1], [2, 2], [3, 3], [4, 4]]
    assert "numpy" not in vars(torch.Tensor)


@pytest.mark.slow
def test_a_step_may_save_its_model(tmp_path):
    eager, mine = Trained(), Trained()

    def saving(trained):
        def step(x):
            loss = trained.step(x)
            torch.save([trained.model.state_dict(), trained.optimizer.state_dict(), loss.detach()], tmp_path / "at.pt")
            return torch.load(tmp_path / "at.pt")

        return step

    check(eager, mine, batches_of(3), saving)


def binomial(h):
    return (torch.distributions.Binomial(5, h.sigmoid().detach()).sample() * h).sum()


def gamma(h):
    return torch.distributions.Gamma(h.exp(), h.exp() + 1).rsample().sum()


def ctc(h):
    return nn.functional.ctc_loss(h[:, None].log_softmax(-1), torch.ones(1, 2).long(), *torch.tensor([[6], [2]]))


def spectrum(h):
    return torch.stft(h.flatten(), 8, window=torch.hann_window(8), return_complex=True).abs().sum()


def pooled(h):
    return nn.functional.adaptive_avg_pool2d(h.view(2, 3, 2, 2).to(memory_format=torch.channels_last), 1).square().sum()


def margins(h):
    return nn.functional.multi_margin_loss(h, torch.tensor([0, 1, 2, 3, 0, 1]))


ENCODER = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4, batch_first=True), 1).eval()
KEPT = nn.Parameter(torch.ones(6, 4))


def padded(h):
    with torch.no_grad():  # it is a nested tensor in there, unless a mode of functions looks on
        seen = ENCODER(h[None], src_key_padding_mask=torch.arange(6)[None] > 3)
    return (h * seen).sum()


def assigned(h):
    KEPT.data = h.detach() * 2
    return (h * KEPT).sum()


def swapped(h):
    old = KEPT.detach()
    KEPT.data = KEPT * 2
    value = (h @ KEPT.T).sum()
    KEPT.data = old
    return value + (h @ KEPT.T).sum()


@torch.library.custom_op("tests::inputs", mutates_args=())
def inputs(h: torch.Tensor) -> torch.Tensor:
    """An op with the name of the graph's own."""
    return h * 2


inputs.register_fake(torch.empty_like)


def shared(h):
    kept = h.detach()
    array = kept.numpy()
    doubled = (kept * 2).sum()
    array[:] = 3
    kept.add_(1)
    return (h * kept).sum() * doubled + float(array.sum())


def refilled(h, make=torch.from_numpy):
    array = np.ones((6, 4), np.float32)
    given = make(array)
    loss = (h * given.clone()).sum()
    array[:] = 2
    loss = loss * (2 if torch.equal(given, torch.full((6, 4), 2.0)) else 1) + given.tolist()[0][0]
    given.view(-1).mul_(h.detach().view(-1))
    return loss + (h * given).sum() + float(array.sum())


def stored(h):
    storage, kept = h.detach().untyped_storage(), h.detach() * 1
    storage.fill_(0)
    assert storage.data_ptr() == h.data_ptr()
    kept.share_memory_()
    return (h + kept).sum() * torch.tensor([kept[0, 0], kept[1, 1]]).sum()


def exchanged(h):
    other = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(h.detach()))
    doubled = (h * 2).sum()
    other.mul_(3)
    return h.sum() * doubled + torch.from_dlpack(KEPT.detach()).sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize(
    "loss",
    [
        *(binomial, gamma, ctc, spectrum, pooled, margins, padded, assigned, swapped, shared, stored, exchanged),
        *(refilled, lambda h: refilled(h, torch.from_dlpack)),
        lambda h: torch.func.hessian(lambda x: (x.tanh() @ KEPT.T).sum())(h[0]).sum(),
        lambda h: (h * inputs(h.detach())).sum(),
        lambda h: torch.func.jvp(lambda x: x.tanh() @ KEPT.T, (h,), (torch.ones_like(h),))[1].sum(),
        lambda h: h.quantile(torch.tensor([0.1, 0.9]), dim=1).sum() + h.median(),
        lambda h: (h * 2).t_().unsqueeze_(0).squeeze_().sum(),
    ],
)
def test_ops_of_every_sort_do_what_they_do_in_eager(loss):
    """Ops that change shapes in place within the library, have no fake, or draw numbers by values."""

    def step(trained):
        def call(x):
            trained.optimizer.zero_grad()
            value = loss(trained.model(x))
            value.backward()
            trained.optimizer.step()
            return value

        return call

    eager, mine = (Trained(lambda: (nn.Linear(4, 4), torch.ones(6, 4))) for _ in range(2))
    mine.model.load_state_dict(eager.model.state_dict())
    check(eager, mine, batches_of(3, rows=6), step)


@pytest.mark.slow
def test_a_copy_of_the_state_within_a_step_stays_as_it_is():
    model, copies = nn.Linear(2, 2), []

    def step(x):
        with torch.no_grad():
            model.weight.mul_(2)
        copies.append(copy.deepcopy(model.state_dict()))
        return model(x)

    planned, first = optimized(step, torch.ones(1, 2)), model.weight.detach().clone()
    for _ in range(2):
        planned(torch.ones(1, 2))
    assert [torch.equal(one["weight"], first * times) for one, times in zip(copies, (2, 4), strict=True)] == [True] * 2
    assert torch.equal(copies[0]["bias"], model.bias)


@pytest.mark.slow
def test_what_numpy_writes_to_a_parameter_in_the_trial_is_undone():
    model = nn.Linear(2, 2)
    first = model.weight.detach().clone()

    def step(x):
        array = model.weight.detach().numpy()
        array *= 2
        return model(x)

    planned = optimized(step, torch.ones(1, 2))
    assert torch.equal(model.weight, first)
    planned(torch.ones(1, 2))
    assert torch.equal(model.weight, first * 2)


@pytest.mark.slow
def test_values_that_follow_from_shapes_are_computed():
    weight, reads = nn.Parameter(torch.ones(4)), []

    def step(x, reads_input=False):
        positions = torch.arange(len(x))
        positions[1:].add_(torch.tensor([1]))
        reads.append((x if reads_input else positions).tolist())
        (weight * x[positions.clamp(max=2)]).sum().backward()
        return weight.grad

    assert schedopt.import_model(step, torch.ones(4)).num_ops
    planned = optimized(step, torch.ones(4))
    planned(torch.ones(4))
    assert (reads[-1], planned._most_parts) == ([0, 2, 3, 4], 1)
    with pytest.raises(ProgramError, match="it reads a value there"):
        schedopt.import_model(lambda x: (x + torch.arange(4)).tolist(), torch.ones(4))


def lists():
    """Two trained tensors in no module, and modules in a list whose names are equal."""
    loose, layers = [nn.Parameter(torch.ones(3)) for _ in range(2)], [nn.Linear(3, 3) for _ in range(2)]
    layers[0].a, layers[0].a_b = nn.Module(), nn.Linear(1, 1)
    layers[0].a.b = nn.Linear(1, 1)
    optimizer = optim.AdamW([*loose, *(part for layer in layers for part in layer.parameters())])

    def step(x):
        x = layers[1](layers[0](x * loose[0] + loose[1]))
        x = layers[0].a_b(layers[0].a.b(x[:, :1]))
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, (torch.ones(2, 3),)


@pytest.mark.slow
def test_tensors_of_lists_have_names_of_their_own():
    names = [resident.name for resident in schedopt.import_model(*lists()).annotations.residents]
    assert len(names) == len(set(names))
    assert {"loose.0", "loose.1.exp_avg", "layers.0.a.b.weight", "layers.0.a_b.weight"} <= set(names)


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["20MiB", "23MiB", "90%", "103%"])
@pytest.mark.filterwarnings("ignore:a part of step. the memory limit")
def test_a_limit_holds_for_all_parts_of_a_step_together(limit):
    layers = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())))
    wide = nn.Sequential(nn.Linear(64, 512), nn.Tanh())

    def step(x):
        loss = layers(x).square().mean()
        loss.item()
        with torch.no_grad():
            wide(x).mean().item()  # 16 MiB beside what the loss holds
        loss.backward()

    x = torch.randn(4096, 64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        planned = schedopt.optimize(step, x, memory_limit=limit, evaluations=5)
        for _ in range(3):
            planned(x)
    refused = [str(one.message) for one in caught if "is not kept" in str(one.message)]
    assert len(refused) == (limit in ("20MiB", "90%")), "searched for once"
    assert all("other parts of the step hold 4." in text for text in refused)


@pytest.mark.slow
@pytest.mark.parametrize("has_plan", [True, False])
def test_a_part_lets_go_of_what_an_earlier_one_made(monkeypatch, has_plan):
    def step(x):
        made = [x.exp() for _ in range(3)]
        made[0].sum().item()
        total = sum(part.sum() for part in made)
        del made
        return total + ((x + 1) * (x + 2)).sum()

    x = torch.ones(2**18)
    _, own = peak_of(lambda: step(x), "cpu")
    planned = optimized(step, x)
    if not has_plan:
        monkeypatch.setattr(own_step, "ordered", Mock(side_effect=ScheduleError("no order")))
    with nullcontext() if has_plan else pytest.warns(UserWarning, match="no order; it runs in program order"):
        planned(x)
    assert (planned._most_parts, planned._planned_parts) == (2, 1 + has_plan)
    assert peak_of(lambda: planned(x), "cpu")[1] <= own + 512


@pytest.mark.slow
def test_a_plan_that_lets_go_of_a_value_is_not_used_where_it_is_kept():
    kept, keeps = [], False

    def step(x):
        made = x @ weight
        made.sum().item()
        if keeps:
            kept.append(made)
        first = made.relu()
        del made
        second = first @ weight
        del first
        third = second.relu()
        return ((third @ weight).exp() * 2 + third).sum()

    weight, x = torch.ones(512, 512) / 512, torch.ones(512, 512)
    planned = optimized(step, x, memory_limit="6MiB")
    planned(x)
    keeps = True
    with pytest.warns(UserWarning, match="the memory limit of .* is not kept"):
        planned(x)


@pytest.mark.slow
def test_a_plan_is_not_used_again_where_other_parts_hold_more_than_the_limit_leaves():
    model = nn.Sequential(*(part for _ in range(6) for part in (nn.Linear(32, 32, bias=False), nn.Tanh())))
    optimizer = optim.SGD(model.parameters(), momentum=0.9, foreach=False)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        if loss.item():
            optimizer.step()
        optimizer.zero_grad()

    planned = optimized(step, torch.ones(128, 32), memory_limit="192KiB", recompute=False)
    planned(torch.ones(128, 32))
    with pytest.warns(UserWarning, match="other parts of the step hold 24.0 KiB; it runs in program order"):
        planned(torch.ones(128, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned(torch.ones(128, 32))


@pytest.mark.slow
def test_parts_are_said_to_be_parts_and_what_they_reserve_not_to_be_the_whole(capsys):
    def step(x):
        (made := x.exp()).sum().item()
        return (made.cos() * x).sum()

    with pytest.warns(UserWarning, match="step: each part keeps the memory limit .*; the whole step may reserve more"):
        optimized(step, torch.ones(9), allocator="cuda", memory_limit="40MiB", verbose=True)(torch.ones(9))
    assert capsys.readouterr().out.startswith("a part of step: peak memory ")


def test_an_array_is_copied_before_the_step_fills_it_again():
    weight, array = nn.Parameter(torch.ones(3)), np.zeros(3, np.float32)

    def step(x):
        total = 0
        for array[:] in (1, 2):
            for copied in (torch.tensor(array), torch.from_numpy(array)):
                total = total + (weight * x * copied).sum()
        return total

    assert optimized(step, torch.ones(3))(torch.ones(3)) == 18


def test_an_array_of_a_step_is_freed_with_it():
    weight, arrays = nn.Parameter(torch.ones(3)), []

    def step(x):
        array = np.ones(3, np.float32)
        arrays.append(weakref.ref(array))
        return (weight * x * torch.from_numpy(array)).sum()

    planned = optimized(step, torch.ones(3))
    with without_gc():
        planned(torch.ones(3))
        assert arrays[-1]() is None


def test_a_call_without_ops_says_nothing_of_the_next():
    weight, works = nn.Parameter(torch.ones(3)), [True]

    def step(x):
        return (weight * x).sum() if works[0] else None

    planned = optimized(step, torch.ones(3))
    for works[0] in (False, True):
        planned(torch.ones(3))
    assert planned._planned_parts == 1


@pytest.mark.slow
def test_checkpointed_attention_without_dropout_is_one_part():
    layer = nn.Linear(8, 8)

    def attend(x):
        return nn.functional.scaled_dot_product_attention(layer(x), x, x)

    def step(x):
        checkpoint(attend, x, use_reentrant=False).square().mean().backward()

    planned = optimized(step, torch.ones(1, 2, 4, 8))
    planned(torch.ones(1, 2, 4, 8))
    assert planned._most_parts == 1


@pytest.mark.slow
def test_who_looks_on_sees_what_runs_and_another_thread_nothing():
    trained, read = Trained(), []

    def step(x):
        loss = trained.step(x)
        other = threading.Thread(target=lambda: read.append((x * 2).tolist()))
        other.start()
        other.join()
        return loss

    planned = optimized(step, trained.args)
    counts = []
    for call in (step, planned):
        with FlopCounterMode(display=False) as counter:
            call(torch.ones(3, 4))
        counts.append(counter.get_total_flops())
        assert read[-1] == [[2.0] * 4] * 3
    assert counts[0] == counts[1] > 0
    with torch.autograd.profiler.profile() as profiler:
        planned(torch.ones(2, 4))  # planned anew
    assert any(event.key == "aten::addmm" for event in profiler.key_averages())


def packed_step():
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 5, batch_first=True)
    sgd = optim.SGD(lstm.parameters(), lr=0.1)

    def step(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        loss = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)[0].square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        return loss

    return step, lstm


@pytest.mark.slow
def test_packed_sequences_run():
    (eager, one), (step, other) = packed_step(), packed_step()
    inputs = torch.randn(3, 5, 4), torch.tensor([5, 2, 3])
    planned = optimized(step, inputs)
    for _ in range(2):
        assert_same(planned(*inputs), eager(*inputs).detach())
    assert_same(one.state_dict(), other.state_dict())


@pytest.mark.slow
def test_a_schedule_made_elsewhere_is_taken_and_nothing_is_run_to_plan(tmp_path, monkeypatch):
    eager, mine = Trained(), Trained()
    file = tmp_path / "step.json"
    schedopt.solve(schedopt.import_model(mine.step, mine.args), evaluations=5).save(file)
    monkeypatch.setattr("schedopt.core.programs.pytorch.plans.measured_costs", None)
    monkeypatch.setattr("schedopt.core.programs.pytorch.own_step.check_module", None)
    planned = optimized(mine.step, mine.args, costs="roofline", plan=file)
    for _ in range(3):
        assert_same(planned(*mine.args), eager.step(*eager.args).detach())
    assert_same(eager.state(), mine.state())
    with pytest.raises(UsageError, match=r"step\.json: it is no schedule of what step records"):
        optimized(mine.step, batches_of(1, rows=5)[0], costs="roofline", plan=file)


@pytest.mark.slow
def test_dropout_is_drawn_once_where_a_limit_lets_ops_run_again(capsys):
    """PyTorch's issue 190758: under `activation_memory_budget` the backward pass draws other masks."""
    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def step(x):
        for layer in layers:
            x = nn.functional.dropout(layer(x).relu(), 0.5)
        loss = x.square().mean()
        loss.backward()
        return loss

    def run(call, x):
        torch.manual_seed(1)
        loss = call(x).detach()
        gradients = [parameter.grad for parameter in layers.parameters()]
        layers.zero_grad()
        return loss, gradients

    x = torch.randn(512, 64)
    planned = schedopt.optimize(step, x, memory_limit="85%", evaluations=200, costs="roofline", verbose=True)
    assert "ops run again to keep the memory limit" in capsys.readouterr().out
    assert_same(run(planned, x), run(step, x))


@pytest.mark.slow
def test_what_recording_costs_and_which_layers_run_again_is_told(capsys):
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)) for _ in range(4)))

    def step(x):
        layers(x).square().mean().backward()

    schedopt.optimize(step, torch.randn(512, 64), memory_limit="75%", evaluations=200, costs="roofline", verbose=True)
    said = capsys.readouterr().out
    assert "By module, " in said
    assert "% more time: " in said
    assert "to record" in said


@pytest.mark.slow
def test_planning_while_a_profiler_warms_up_leaves_it_alone():
    seen = []
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=lambda profiler: seen.append({event.key for event in profiler.key_averages()}),
    ) as profiler:
        mine = Trained()
        planned = optimized(mine.step, mine.args)
        profiler.step()
        planned(*mine.args)
        profiler.step()
    assert "aten::addmm" in seen[0]


def test_a_recurrent_layer_of_cudnn_is_refused_with_its_line(monkeypatch):
    layer = nn.GRU(3, 4)
    monkeypatch.setattr(torch_internals, "runs_by_cudnn", lambda tensor: True)
    text = (
        r"test_own_step.py:\d+: a recurrent layer of cuDNN cannot be recorded; set torch.backends.cudnn.enabled = False"
    )
    with pytest.raises(ProgramError, match=text):
        schedopt.optimize(lambda x: layer(x)[0].sum(), torch.ones(2, 3))


@pytest.mark.slow
def test_an_op_on_lists_is_cut_so_that_its_first_part_runs_before_the_last_gradient_is_there():
    """What is checked is the step as it was recorded, with the op whole."""
    model = nn.Sequential(*[nn.Linear(200, 200) for _ in range(8)], nn.Linear(200, 3))
    optimizer = optim.AdamW(model.parameters(), foreach=True)
    kinds = Counter()

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model[0].parameters(), 100.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x = torch.randn(2, 200)
    graph = schedopt.import_model(step, x)
    kinds.update(re.sub(r"_\d+$", "", name) for name in graph.op_names)
    assert kinds["_foreach_addcdiv_"] == kinds["_foreach_lerp_"] == 9 and kinds["_foreach_norm"] == 2
    result = schedopt.solve(graph, time_limit=1)
    assert result.input_value - result.peak_memory > 4 * 160_000  # half of the gradients, as there is no other gain
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(3):
        step(x)
    expected = [parameter.detach().clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
    optimizer.state.clear()
    planned = schedopt.optimize(step, x, time_limit=1)
    for _ in range(3):
        planned(x)
    assert all(map(torch.equal, model.parameters(), expected))


@pytest.mark.slow
@pytest.mark.parametrize("of_states", [False, True])
def test_an_op_on_lists_that_takes_or_returns_more_than_a_value_per_place_stays_whole(of_states):
    """One tensor has a number for each place, one op returns a list of lists."""

    def step(weights, gradients):
        if not of_states:
            scales = torch.linspace(0.1, 0.3, len(weights))
            torch._foreach_addcdiv_(weights, gradients, [torch.ones(3) for _ in weights], scales)
            return []
        states = [[torch.zeros(3) for _ in weights] for _ in range(2)]
        numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}
        steps = [torch.ones(()) for _ in weights]
        made = torch.ops.aten._fused_adamw(
            weights, gradients, *states, [], steps, **numbers, amsgrad=False, maximize=False
        )
        return [tensor + 1 for part in made for tensor in part]

    own, planned = ([[torch.arange(3.0) + at for at in range(5)] for _ in range(2)] for _ in range(2))
    expected = step(*own)
    found = schedopt.optimize(step, planned, evaluations=100)(*planned)
    assert len(expected) == 20 * of_states
    assert all(map(torch.equal, [*expected, *own[0]], [*found, *planned[0]]))


def test_tensors_of_the_cpu_do_not_count_beside_a_part_on_cuda():
    with FakeTensorMode():
        there, here, other = torch.empty(10, device="cuda"), torch.empty(10), torch.empty(5, device="cuda")
    segment = Segment(RecordedOp())
    names = Mock(tensors=lambda: [here, there])
    for held, beside in ((there, 20), (here, 60)):
        segment.held = {0: held}
        assert own_step.PlannedStep._held(Mock(_limit=1), segment, names, [other]) == beside


@pytest.mark.slow
def test_an_lstm_runs_in_program_order_too():
    """Its kernel keeps what the backward pass reads only where autograd is on; no order fits into its limit."""

    def made():
        torch.manual_seed(0)
        net = nn.LSTM(4, 4)
        optimizer = optim.SGD(net.parameters(), 0.1)

        def step(x):
            loss = net(x)[0].square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return net, step

    (one, eager), (other, step) = made(), made()
    lengths = [torch.randn(length, 2, 4) for length in (3, 4000)]
    planned = schedopt.optimize(step, lengths[:1], evaluations=20, memory_limit="64KiB", recompute=False)
    with pytest.warns(UserWarning, match="it runs in program order"):
        for x in lengths * 2:
            assert torch.equal(planned(x), eager(x))
    assert all(map(torch.equal, one.parameters(), other.parameters()))


def test_a_step_that_is_refused_leaves_optimizer_and_random_states():
    """Each change is undone, also after one that cannot be: a copy of the state, made in the step, has another size."""
    torch.manual_seed(0)
    net, draws, numbers = nn.Linear(4, 4), random.Random(3), np.random.default_rng(4)
    optimizer = optim.Adam(net.parameters())

    def step(x):
        loss = net(x).sum() * (draws.random() + numbers.random())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return copy.deepcopy(optimizer.state_dict())

    def state():
        return [s["step"].item() for s in optimizer.state.values()], draws.getstate(), str(numbers.bit_generator.state)

    step(torch.ones(2, 4))
    before = state()
    with pytest.raises(ProgramError, match="the step cannot be recorded at copy"):
        schedopt.optimize(step, (torch.ones(2, 4),), evaluations=5)
    assert state() == before


@pytest.mark.slow
def test_state_that_an_interrupted_step_began_is_dropped(monkeypatch):
    """Adam makes three tensors for a parameter; a signal after the second leaves no half of them."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    planned = schedopt.optimize(step, (torch.ones(1, 2),), evaluations=5)
    made, zeros_like = [], torch.zeros_like

    def interrupted(*args, **kwargs):
        made.append(args)
        if len(made) == 2:
            raise KeyboardInterrupt
        return zeros_like(*args, **kwargs)

    monkeypatch.setattr(torch, "zeros_like", interrupted)
    with pytest.raises(KeyboardInterrupt):
        planned(torch.ones(1, 2))
    assert not optimizer.state
    planned(torch.ones(1, 2))
    assert [len(entries) for entries in optimizer.state.values()] == [3, 3]


def test_a_handler_that_a_step_replaced_may_be_put_back_after_it():
    taken, kept = [], []
    first = signal.signal(signal.SIGINT, lambda *_: taken.append("the caller's"))
    try:
        with RECORDING:
            RECORDING.call(lambda: kept.append(signal.signal(signal.SIGINT, lambda *_: taken.append("its own"))))
        signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, *kept)
        with RECORDING:
            RECORDING.call(signal.raise_signal, signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, first)
    assert taken == ["its own", "the caller's"]
