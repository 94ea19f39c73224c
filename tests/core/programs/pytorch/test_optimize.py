"""`schedopt.optimize`: same results, less memory."""

import copy
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import schedopt
import torch
from models import torch_models
from schedopt import ProgramError, UsageError, optimize
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.model.allocators import Allocator
from schedopt.core.programs.pytorch import plans
from schedopt.core.programs.pytorch.importer import Import
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import begin_anew, held_bytes, measured_costs, peak_of
from schedopt.core.programs.pytorch.tracing import TorchProgram
from schedopt.core.solve import reserving
from torch import nn
from torch.utils._pytree import tree_flatten


def test_optimize_returns_the_model_with_a_lower_peak():
    model, inputs = torch_models.branches()
    expected = copy.deepcopy(model)
    program = program_of(copy.deepcopy(model), inputs)
    better = schedopt.optimize(model, inputs, time_limit=1, method="lpmf")
    with torch.no_grad():
        better(*inputs)  # the first call is compared with the model's own
        found, peak = peak_of(lambda: better(*inputs), "cpu")
        expected(*inputs)
        _, before = peak_of(lambda: program.module(*program.arguments), "cpu")
        one, structure = tree_flatten(expected(*inputs))
    other, other_structure = tree_flatten(found)
    assert structure == other_structure
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert peak < before
    assert torch.equal(model.calls, expected.calls), "the model's own buffers are updated, once"
    own, planned = model.state_dict().values(), better.state_dict().values()
    assert held_bytes([*own, *planned]) == held_bytes(own)


class Tied(nn.Module):
    """Two layers of one weight, dropout, batch statistics."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.two.weight = self.one.weight
        self.norm, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.3)

    def forward(self, x):
        return self.two(self.dropout(self.norm(self.one(x)).relu())).square().mean()


@pytest.fixture
def tied():
    torch.manual_seed(0)
    return Tied()


class Repeated(nn.Module):
    """One layer under two names, and in a list."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.two, self.all = self.one, [self.one]

    def forward(self, x):
        return self.two(self.one(x)).square()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(8, 8)

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize("kind", [Repeated, Recurrent])
@pytest.mark.parametrize("training", ["none", "sgd"])
def test_tracing_leaves_the_model_as_it_was(kind, training):
    model, x = kind(), torch.randn(3, 2, 8)
    twin, before = copy.deepcopy(model), dict(model.named_parameters(remove_duplicate=False))
    schedopt.import_model(model, x, training=training)
    better = optimize(model, x, method="lpmf") if training == "none" else model
    assert all(value is before[name] for name, value in model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        assert torch.equal(model(x), twin(x))
        assert all(torch.equal(better(x), twin(x)) for _ in range(2))


@pytest.mark.slow
def test_what_optimize_returns_is_a_module_with_the_parts_of_the_model(tied):
    better = optimize(tied, torch.randn(4, 8), method="lpmf")
    assert list(better.state_dict()) == list(tied.state_dict())
    assert dict(better.named_parameters()).keys() == dict(tied.named_parameters()).keys()
    assert all(one is other for one, other in zip(better.parameters(), tied.parameters(), strict=True))
    assert better.one is tied.one
    values = {name: torch.ones_like(value) for name, value in tied.state_dict().items()}
    better.load_state_dict(values)
    assert torch.equal(tied.one.weight, torch.ones(8, 8))
    assert repr(better) == "PlannedModel(Tied, 1 plan)"
    assert better.training


@pytest.mark.slow
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_stands_for_itself(tied, copied):
    tied.eval()
    x = torch.randn(4, 8)
    better = optimize(tied, x, method="lpmf", dynamic=False)
    other = copied(better)
    assert not set(other.parameters()) & set(tied.parameters())
    with torch.no_grad():
        assert all(torch.equal(other(x), better(x)) for _ in range(2))
    with torch.no_grad(), pytest.raises(UsageError, match=r"expected x: float32\[4, 8\], got float32\[2, 8\]"):
        other(torch.randn(2, 8))


@pytest.mark.slow
def test_verbose_says_peak_memory_before_and_after_for_each_plan(capsys):
    model, (image,) = torch_models.branches()
    better = optimize(model, image, method="lpmf", verbose=True)
    with torch.no_grad():
        better(image)
        better(image[:1])
    lines = capsys.readouterr().out.splitlines()
    pattern = r"Branches: peak memory [\d.]+ .?i?B -> [\d.]+ .?i?B \(bound [\d.]+ .?i?B, (optimal|gap [\d.]+%)\)"
    assert len(lines) == 2
    assert all(re.fullmatch(pattern, line) for line in lines)


@pytest.mark.slow
def test_plans_are_for_what_an_allocator_reserves(monkeypatch, capsys):
    """Weights are there already, so that a block before them is the user's to open; None and CPUs: live bytes."""
    monkeypatch.setattr(reserving, "OTHER_SEEDS", 0)
    monkeypatch.setattr(reserving, "OTHER_EVALUATIONS", 1)
    model, x = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 8)).eval(), torch.randn(2048, 512)
    for allocator in ("cuda:cublas_workspace:default", None, "auto"):
        better = optimize(model, x, allocator=allocator, evaluations=1, verbose=True)
        with torch.no_grad():
            assert torch.equal(better(x), model(x))
    lines = capsys.readouterr().out.splitlines()
    size = r"[\d.]+ MiB"
    assert re.search(rf"\. cuda:cublas_workspace::8320:1 reserves {size} -> {size} \(bound {size}\)", lines[0])
    assert re.search(
        r"; opening block: torch.empty\(\d+, .*, before the model is moved .*, reserves [\d.]+ MiB\.$", lines[0]
    )
    assert not any("reserves" in line for line in lines[1:])
    with pytest.raises(UsageError, match="unknown allocator 'cpu'"):
        optimize(model, x, allocator="cpu")


def test_the_allocator_in_use_is_read_off_pytorch_and_its_plan_begins_anew(monkeypatch):
    done, product, sum_ = [], GraphBuilder("product"), GraphBuilder("sum")
    product.add_op("addmm_3")
    sum_.add_op("add_3")
    in_use = partial(plans.allocator_in_use, product.build())
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(in_use()) == "cuda:max_split_size_mb:64,cublas_workspace::8320:1"
    assert str(plans.allocator_in_use(sum_.build())) == "cuda:max_split_size_mb:64"
    for name in ("addmm_", "addmm__3", "addbmm"):
        product = GraphBuilder("product")
        product.add_op(name)
        assert plans.allocator_in_use(product.build()) == in_use()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native", raising=False)
    monkeypatch.setattr(torch.backends.cuda, "cublas_workspace_size", lambda: 2**25, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    monkeypatch.setattr(torch, "empty", lambda size, **given: done.append((size, str(given["device"]))))
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert str(in_use()) == "cuda:expandable_segments:True,cublas_workspace::32768:1"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "of_tomorrow:True")
    with pytest.warns(UserWarning, match=r"plans are for live bytes, .*: unknown allocator option 'of_tomorrow'"):
        assert in_use() is None
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    assert in_use() is None
    module = torch.fx.GraphModule(nn.Module(), torch.fx.Graph())
    begin_anew(module)
    assert not done
    module.meta["opening_block"] = 4096, torch.device("cuda:1")
    begin_anew(module)
    begin_anew(module)
    assert done == ["emptied", (4096, "cuda:1")]


@pytest.mark.slow
def test_a_plan_on_cuda_is_for_its_allocator_and_its_block_is_opened_before_its_first_run(
    monkeypatch, tmp_path, capsys
):
    """As far as a CPU can play CUDA: a model and a step, each with the block of its plan."""
    opened = []
    monkeypatch.setattr(reserving, "OTHER_SEEDS", 0)
    monkeypatch.setattr(reserving, "OTHER_EVALUATIONS", 1)
    monkeypatch.setattr(TorchProgram, "device", torch.device("cuda"))
    monkeypatch.setattr(Import, "_bytes", lambda program, tensor, size: size)
    monkeypatch.setattr(plans, "allocator_in_use", lambda graph: Allocator())
    monkeypatch.setattr(plans, "measured_costs", lambda program, device, **how: measured_costs(program, "cpu"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: opened.append([]))
    empty = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *s, **g: opened[-1].append(s[0]) if str(g.get("device")) == "cuda" else empty(*s, **g)
    )
    layers = [nn.Linear(600, 2000), nn.ReLU(), nn.Linear(2000, 3000), nn.ReLU(), nn.Linear(3000, 600)]
    model, x = nn.Sequential(*layers).eval(), torch.randn(1000, 600)
    with torch.no_grad():
        planned = optimize(model, x, evaluations=1)
        planned(x)  # checked, with the model's own results
        assert not opened
        planned(x), planned(x)
    assert len(opened) == 1 and opened[0][0] > 2**20

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        model.zero_grad()
        return loss

    optimize(step, x, evaluations=1)(x)
    assert len(opened) > 1 and all(len(blocks) == 1 for blocks in opened)
    capsys.readouterr()
    result = schedopt.solve(schedopt.import_model(step, x), evaluations=1, allocator="cuda")
    for is_before, blocks in ((False, [[2**24]]), (True, [])):  # of a saved plan
        opened.clear()
        saved = replace(result.reserved, opening_block=2**24, is_before_weights=is_before)
        replace(result, reserved=saved).save(tmp_path / "step.json")
        optimize(step, x, costs="roofline", plan=tmp_path / "step.json", verbose=True)(x)
        assert opened == blocks
        line = 'opening block: torch.empty(16777216, dtype=torch.uint8, device="cuda"), before the model is moved'
        assert (line in capsys.readouterr().out) == is_before


@pytest.mark.parametrize(
    ("model", "kwargs", "message"),
    [
        (42, {}, "optimize takes a PyTorch module, or a function that does a training step, not int"),
        (nn.Linear(4, 4), {"time_limit": "5 parsecs"}, "time_limit='5 parsecs' has an unknown unit"),
        (nn.Linear(4, 4), {"time_limit": 0}, "time_limit= must be more than 0"),
        (nn.Linear(4, 4), {"dynamic": True}, "dynamic=True is not supported: a plan is for fixed shapes; leave it out"),
        (nn.Linear(4, 4), {"plan_limit": 0}, "plan_limit= must be at least 1, not 0"),
        (nn.Linear(4, 4), {"training": "sgd"}, r"training= is not for optimize; write the step: def step\(x\): loss"),
        (torch.optim.AdamW([torch.ones(1)]), {}, r"the optimizer, AdamW, is not for optimize; write the step: def"),
        (nn.Linear(4, 4), {"seed": -1}, "seed= must be at least 0, not -1"),
    ],
)
def test_what_optimize_cannot_take_is_refused(model, kwargs, message):
    with pytest.raises(UsageError, match=message):
        optimize(model, torch.ones(2, 4), **kwargs)


def test_an_optimizer_is_no_training_of_an_import():
    with pytest.raises(UsageError, match="not a SGD; with an optimizer of your own give a function that does"):
        schedopt.import_model(nn.Linear(4, 4), torch.ones(2, 4), training=torch.optim.SGD([torch.ones(1)]))


@pytest.mark.slow
def test_a_model_that_is_optimized_already_is_refused(tied):
    better = optimize(tied, torch.randn(4, 8), method="lpmf")
    with pytest.raises(UsageError, match=r"^the model is optimized already; optimize the module that it was made of$"):
        optimize(better, torch.randn(4, 8))


def test_an_error_has_no_long_traceback_of_pytorchs():
    class Reads(nn.Module):
        def forward(self, x):
            return x * len(x.tolist())

    with pytest.raises(ProgramError, match=r"^Reads: PyTorch makes no one graph of the model at test_op") as caught:
        optimize(Reads(), torch.randn(2, 5))
    assert caught.value.__suppress_context__
    assert "\n" not in str(caught.value)
    assert not [frame for frame in caught.traceback if str(frame.path).startswith(str(Path(torch.__file__).parent))]
