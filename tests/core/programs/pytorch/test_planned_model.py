"""Calls of `schedopt.optimize(model)`: as the model's own, whatever has changed."""

import copy
import functools
import gc
import logging
import random
import threading
import time
import types
import warnings
import weakref

import numpy as np
import pytest
import torch
from schedopt import ProgramError, UsageError, import_model, optimize
from schedopt.core.programs.pytorch import optimize as optimize_module
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import results_of
from schedopt.core.programs.pytorch.runtime import other_result
from schedopt.core.programs.pytorch.tracing import LOCK
from torch import nn
from torch.fx import _symbolic_trace as symbolic_trace
from torch.utils.flop_counter import FlopCounterMode


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

    def forward(self, x, factor=1.0):
        y = self.activation(self.norm(self.dropout(self.layer(x)))) * self.scale * self.mask * factor
        config = self.config.heads["scale"] * len(self.config.heads["skip"])
        y = sum(y**power for power in self.powers) * config * self.settings.sign
        return self.finish(y + self.nested[1][1]["bias"])


@pytest.fixture
def modes():
    torch.manual_seed(0)
    return Modes()


def planned(model, inputs, **options):
    return optimize(model, inputs, method="lpmf", **options)


def plans_of(module):
    return int(repr(module).rpartition(", ")[2].split()[0])


def same(step, model, *inputs, **more):
    """Whether two calls give what the model gives, buffers included, from the same random numbers."""
    for _ in range(2):  # the first is compared with the model, the second is the plan alone
        twin, copies = copy.deepcopy((model, inputs))
        with torch.no_grad():
            torch.manual_seed(1)
            expected = twin(*copies, **more)
            torch.manual_seed(1)
            found = step(*inputs, **more)
        pairs = [(a, b) for a, b in zip(inputs, copies, strict=True) if isinstance(a, torch.Tensor)]
        pairs += [(found, expected)]
        pairs += zip(model.state_dict().values(), twin.state_dict().values(), strict=True)
        if not all(torch.equal(one, other) for one, other in pairs) or step._differs:
            return False
    return True


CHANGES = {
    "mode": lambda m: m.eval(),
    "rate": lambda m: setattr(m.dropout, "p", 0.1),
    "scale": lambda m: setattr(m, "scale", 3.0),
    "powers": lambda m: m.powers.append(3),
    "mask": lambda m: setattr(m, "mask", torch.zeros(8)),
    "activation": lambda m: setattr(m, "activation", torch.tanh),
    "config": lambda m: m.config.heads.update(scale=3.0),
    "set": lambda m: m.again.heads["skip"].add(3),
    "setting": lambda m: setattr(m.settings, "sign", -1),
    "nested": lambda m: m.nested[1][1].update(bias=1.0),
    "partial": lambda m: setattr(m, "finish", functools.partial(torch.mul, other=2.0)),
    "hook": lambda m: m.layer.register_forward_hook(lambda module, args, output: output + 1),
    "layer": lambda m: setattr(m, "layer", nn.Linear(8, 8, bias=False)),
    "weight": lambda m: setattr(m.layer, "weight", nn.Parameter(torch.randn(8, 8))),
    "data": lambda m: setattr(m.layer.weight, "data", torch.randn(8, 8)),
    "frozen": lambda m: m.layer.requires_grad_(False),
    "loaded": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}, assign=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_model_is_seen(modes, change):
    x = torch.randn(4, 8)
    better = planned(modes, x)
    assert same(better, modes, x)
    assert plans_of(better) == 1
    CHANGES[change](modes)
    assert same(better, modes, x)
    assert {id(value) for value in better.parameters()} == {id(value) for value in modes.parameters()}


@pytest.mark.slow
def test_each_kind_of_call_has_a_plan(modes):
    x = torch.randn(4, 8)
    better = planned(modes, x, plan_limit=9)
    for call in [(x,), (x[:2],), (x, 3.0), (x[:2],), (x, -0.0), (x, 1.0), (x.t().contiguous().t()[:, :8],)]:
        assert same(better, modes, *call)
    assert same(better, modes, x, factor=3.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert same(better, modes, x)
    with torch.inference_mode():
        assert same(better, modes.eval(), torch.randn(4, 8))
    assert 5 <= plans_of(better) <= 9


@pytest.mark.slow
def test_dynamic_false_and_the_limit_of_plans_are_sentences(modes):
    x = torch.randn(4, 8)
    fixed, limited = planned(modes, x, dynamic=False), planned(modes, x, plan_limit=1)
    with torch.no_grad():
        for call, message in [
            ((x[:2],), r"^expected x: float32\[4, 8\], got float32\[2, 8\]; it was made with dynamic=False$"),
            ((x.double(),), "^expected x: float32.*, got float64"),
            ((x, 3.0), "^expected factor: 1.0, got 3.0; "),
            ((), r"^missing a required argument: 'x'; the inputs are x, factor=1.0$"),
            ((x.numpy(),), "^input 'x' is a NumPy ndarray; give a tensor"),
            ((x.to_sparse(),), "^input 'x' is a tensor of layout torch.sparse_coo, which is not supported; give"),
        ]:
            with pytest.raises(UsageError, match=message):
                fixed(*call)
        with pytest.raises(UsageError, match=r"got float32\[2, 8\]; there are 1 plans, .* limit$"):
            limited(x[:2])
        assert same(fixed, modes, x)
        modes.scale = 3.0
        with pytest.raises(UsageError, match=r"^the model has changed; it was made with dynamic=False$"):
            fixed(x)


@pytest.mark.slow
def test_a_call_at_which_the_model_itself_raises_raises_that_and_the_others_go_on(modes, caplog):
    better = planned(modes, torch.randn(4, 8))
    with pytest.raises(RuntimeError, match=r"^(\w+: )?mat1 and mat2 shapes .*4x7 and 8x8") as caught, torch.no_grad():
        better(torch.randn(4, 7))
    assert caught.value.__context__ is None
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert same(better, modes, torch.randn(4, 8))


LOG = []


class Logging(nn.Module):
    """Counts its calls in a global, and may stop in PyTorch's eyes only."""

    def forward(self, x):
        LOG.append(x.shape)
        return torch.tensor(x.tolist()) if len(x) > 3 else x + 1


@pytest.mark.slow
def test_globals_change_as_in_calls_of_the_model():
    better, calls = planned(Logging(), torch.ones(3)), len(LOG)
    with torch.no_grad():
        assert better(torch.ones(3)).tolist() == [2, 2, 2]
        with pytest.raises(ProgramError, match=r"^expected x: float32\[3\], got float32\[4\]; no plan can be made"):
            better(torch.ones(4))
    assert len(LOG) == calls + 1


@pytest.mark.slow
def test_threads_wait_for_the_check_of_a_plan():
    threads = []
    waiting = iter(threads)  # hides from the model that it reaches its own plan

    def meet(*_):
        if not torch.compiler.is_compiling():
            for thread in waiting:
                thread.start()
                thread.join(0.1)

    norm, x = nn.BatchNorm1d(8), torch.randn(4, 8)
    norm.register_forward_hook(meet)
    better = planned(norm, x)
    threads.append(threading.Thread(target=torch.no_grad()(better), args=(x[:3],)))
    with torch.no_grad():
        better(x)
    threads[0].join()
    assert (norm.num_batches_tracked, better._differs, plans_of(better)) == (2, False, 2)


@pytest.mark.slow
def test_plans_that_pytorch_drops_are_counted_and_checked_no_more():
    better, x = planned(nn.ReLU(), torch.ones(3), plan_limit=1), torch.ones(3)
    torch._dynamo.reset()
    gc.collect()
    assert plans_of(better) == 0
    with torch.no_grad(), torch.compiler.set_stance("force_eager"), pytest.raises(ProgramError, match="switched off"):
        better(x)
    assert same(better, better._model, x)


@pytest.mark.slow
def test_plans_hold_no_parameter_that_the_model_has_no_more(modes):
    x = torch.randn(4, 8)
    better = planned(modes, x)
    assert same(better, modes, x)
    old = weakref.ref(modes.layer.weight)
    modes.layer.weight = nn.Parameter(torch.randn(8, 8))
    assert same(better, modes, x)
    gc.collect()
    assert old() is None
    model = weakref.ref(modes.layer)
    del better, modes.layer
    gc.collect()
    assert model() is None


class Counting(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls, self.last = self.calls + 1, x
        return x + 1


@pytest.mark.slow
def test_a_dispatch_mode_sees_the_model_itself():
    net, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval(), torch.randn(4, 64)
    planned = optimize(net, (x,))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        assert torch.equal(planned(x), net(x))
    assert counter.get_total_flops() == 2 * 2 * (2 * 4 * 64 * 64)
    with torch.no_grad():
        assert torch.equal(planned(x), net(x))


@pytest.mark.slow
def test_a_model_whose_own_code_changes_it_is_called_itself():
    model, x = Counting(), torch.ones(2)
    better = planned(model, x)
    assert model.calls == 0
    with pytest.warns(UserWarning, match="Counting: its own code changes an attribute at each call, so that no plan"):
        results = [better(x * number) for number in range(4)]
    assert model.calls == 4
    assert all(torch.equal(result, x * number + 1) for number, result in enumerate(results))
    assert plans_of(better) == 2


class Product(nn.Module):
    """Writes its first input in place."""

    def forward(self, x, y):
        x.add_(1)
        return (x * y).sum()


@pytest.mark.slow
def test_inputs_that_share_memory():
    better = planned(Product(), (torch.randn(4), torch.randn(4)))
    for at in (1, 4, 2, 0):
        memory = torch.randn(8)
        assert same(better, Product(), memory[:4], memory[at : at + 4])
    x = torch.randn(4)
    assert same(better, Product(), x, x)
    assert plans_of(better) >= 4


class Returned(nn.Module):
    """Writes its input in place, and returns it, a view of it, and what the write returned."""

    def forward(self, x):
        return x.mul_(2), x.view(-1)[3:7], x


@pytest.mark.slow
def test_an_input_that_is_written_and_returned():
    better = planned(Returned(), (torch.randn(4, 4),))
    for _ in range(3):
        x = torch.randn(4, 4)
        given = x.clone()
        with warnings.catch_warnings(action="error"):  # of a plan whose results differ
            first, part, last = better(given)
        assert first is last is given
        assert torch.equal(given, 2 * x) and torch.equal(part, given.view(-1)[3:7])
    assert plans_of(better) == 1


class Branches(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.layer, self.what = nn.Linear(8, 8), what
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1)

    def forward(self, x):
        padding = torch.arange(x.shape[1]) > torch.arange(1, len(x) + 1)[:, None]
        return {
            "gradients": lambda: self.layer(x) if torch.is_grad_enabled() else self.layer(x).relu(),
            "exporting": lambda: self.layer(x) if torch.compiler.is_exporting() else self.layer(x).relu(),
            "compiling": lambda: self.layer(x) if torch.compiler.is_compiling() else self.layer(x).relu(),
            "encoder": lambda: self.encoder(x, src_key_padding_mask=padding),
        }[self.what]()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("what", ["gradients", "exporting", "compiling", "encoder"])
def test_where_tracing_takes_another_branch_results_are_the_models(what):
    torch.manual_seed(0)
    model, x = Branches(what).eval(), torch.randn(2, 5, 8)
    better = planned(model, x)
    with torch.no_grad():
        if what in ("compiling", "encoder"):
            with pytest.warns(UserWarning, match="Branches: results of its plan are not bitwise those of the model"):
                better(x)
        assert all(torch.equal(better(x), model(x)) for _ in range(2))


@pytest.mark.parametrize(("what", "other"), [("exporting", "result 0"), ("gradients", "result 0"), (None, None)])
def test_a_program_is_compared_with_a_call_of_the_model(what, other):
    torch.manual_seed(0)
    model = Branches(what).eval() if what else Modes().train()
    program = program_of(model, torch.randn(4, 8))
    before = copy.deepcopy(model.state_dict())
    assert other_result(program, results_of(program, program.module, program.arguments)) == other
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


class Chance(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.layer, self.draw = nn.Linear(8, 8), draw

    def forward(self, x):
        return self.layer(x) if self.draw() < 0.5 else x * 2


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_draws_of_python_and_numpy_are_refused_or_told(draw):
    model, x = Chance(draw).train(), torch.ones(1, 8)
    with pytest.raises(ProgramError, match=r"^Chance: PyTorch makes no one graph of the model at test_planned"):
        planned(model, x)
    notes, before = [], random.getstate()
    import_model(model, x, note=notes.append)
    assert any("draws random numbers with Python or NumPy, and the graph holds one draw" in note for note in notes)
    assert random.getstate() == before


@pytest.mark.slow
def test_results_without_gradients_are_told_at_the_call(modes):
    better, x = planned(modes, torch.randn(4, 8)), torch.randn(4, 8)
    with pytest.warns(UserWarning, match="have no gradients; .* give optimize a step function, or use torch.compile"):
        assert not better(x).requires_grad
    with pytest.raises(UsageError, match=r"^input 'x' requires a gradient, which a planned model does not give"):
        better(x.requires_grad_())


class Holding(nn.Module):
    def __init__(self, **held):
        super().__init__()
        for name, value in held.items():
            self.register_buffer(name, value) if isinstance(value, torch.Tensor) else setattr(self, name, value)

    def forward(self, x):
        return x + 1


class DistributedDataParallel(nn.Module):
    """As PyTorch calls it."""


class FSDPModule(nn.Module):
    """As PyTorch calls it."""


FOREIGN = [
    (lambda: Holding(a=torch.eye(4).to_sparse()), r"buffer 'a' is sparse \(torch.sparse_coo\); give its to_dense"),
    (lambda: Holding(a=torch.eye(4).to_sparse_csr()), r"buffer 'a' is sparse \(torch.sparse_csr\); give its to_dense"),
    (lambda: Holding(g=torch.Generator()), "attribute 'g' is a torch.Generator, whose draws no graph holds; draw from"),
    (lambda: nn.LazyLinear(4), "parameter 'weight' is not initialised yet; call the model once before"),
    (lambda: torch.jit.script(nn.Linear(4, 4)), "the model is compiled by TorchScript; give the module that"),
    (lambda: torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4)), "the model is compiled by TorchScript; give"),
    (lambda: nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(4, 4)), "module '0' is quantised .* in floating point"),
    (DistributedDataParallel, "talks to other processes, which no plan holds; plan its module, or use torch.compile"),
    (FSDPModule, "talks to other processes, which no plan holds; plan the module before fully_shard, or use"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*quantize", "ignore:.*[Ss]parse")
@pytest.mark.parametrize(("make", "message"), FOREIGN)
def test_foreign_models_are_a_sentence(make, message):
    for use in (planned, import_model):
        with pytest.raises(ProgramError, match=f": .*{message}"):
            use(make(), torch.ones(2, 4))


def test_the_graphs_of_a_model_that_is_dropped_are_freed():
    planned = optimize(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), (torch.ones(2, 8),), evaluations=5)
    with torch.no_grad():
        planned(torch.ones(2, 8))
    graphs = [weakref.ref(one) for one in gc.get_objects() if type(one) is optimize_module._Graph]
    graphs = [one for one in graphs if one().plans is planned._plans]
    del planned
    gc.collect()
    assert [one() for one in graphs] == [None]


@pytest.mark.slow
def test_a_call_waits_while_another_thread_traces():
    """TorchDynamo refuses all calls of what it has compiled meanwhile."""
    model, x = nn.Linear(3, 4).eval(), torch.ones(2, 3)
    planned = optimize(model, x)
    begun = threading.Event()

    def trace():
        with LOCK:
            symbolic_trace._is_fx_tracing_flag = True
            begun.set()
            time.sleep(0.2)
            symbolic_trace._is_fx_tracing_flag = False

    with torch.no_grad():
        planned(x)
        thread = threading.Thread(target=trace)
        thread.start()
        begun.wait()
        assert torch.equal(planned(x), model(x))
        thread.join()
