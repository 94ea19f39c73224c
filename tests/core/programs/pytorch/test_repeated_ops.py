"""Programs whose ops run again: bitwise the same results, in the memory that is predicted."""

import functools
import json

import numpy as np
import pytest
import schedopt
import torch
from models import torch_models
from models.seeds import mostly_slow
from schedopt import Problem, Schedule, ScheduleError, UsageError
from schedopt.core.model.simulator import simulate
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pipeline import Observer, apply, measure
from schedopt.core.programs.pytorch.importer import graph_of
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import check_module, function_of, held_bytes, measured_costs, peak_of, reorder
from schedopt.core.programs.pytorch.runtime import export_in_order
from schedopt.core.programs.runtime import check_order
from torch import nn
from torch.nn import functional as f


def with_repeats(graph, seed, share=0.3):
    """Return program order with ops that may run again put in a second time, at random places that keep the rules."""
    rng = np.random.default_rng(seed)
    order = graph.input_order.tolist()
    producers = graph.tensor_producer
    waiting = {}
    for op in order:
        for tensor in graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]].tolist():
            if graph.is_control[tensor]:
                waiting.setdefault(int(producers[tensor]), set()).add(op)
    for op in np.flatnonzero(~graph.runs_once & (rng.random(graph.num_ops) < share)).tolist():
        first = order.index(op)
        last = min((order.index(other) for other in waiting.get(op, ())), default=len(order))
        order.insert(int(rng.integers(first + 1, last + 1)), op)
    return order


def peak_of_run(program, module):
    """Return the bytes that a program's code holds at most beside its arguments."""
    run = function_of(module.code)
    arguments = [value.clone() if isinstance(value, torch.Tensor) else value for value in program.arguments]
    with torch.random.fork_rng(), torch.set_grad_enabled(program.training != "none"):
        torch.manual_seed(0)
        _, peak = peak_of(lambda: run(*arguments), "cpu")
    return peak


class UNet(nn.Module):
    """Down and up once, with batch statistics and relus in place; returns its loss."""

    def __init__(self):
        super().__init__()
        self.down, self.middle, self.merge = (self.block(*widths) for widths in ((3, 8), (8, 16), (16, 8)))
        self.up, self.head = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(8, 1, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, image):
        kept = self.down(image)
        wide = self.middle(f.max_pool2d(kept, 2))
        return self.head(self.merge(torch.cat([kept, self.up(wide)], 1))).square().mean()


def unet():
    torch.manual_seed(0)
    return UNet(), torch.randn(2, 3, 16, 16)


class GPT(nn.Module):
    """A language model of three layers, whose output shares the weight of its embedding; returns its loss."""

    def __init__(self, width=32, words=50):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = functools.partial(nn.TransformerEncoderLayer, width, 4, 4 * width, 0.0, "gelu")
        self.layers = nn.Sequential(*(layer(batch_first=True, norm_first=True) for _ in range(3)))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        scores = self.head(self.layers(self.words(tokens)))
        return f.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def gpt():
    torch.manual_seed(0)
    return GPT(), torch.randint(50, (4, 32))


CASES = {
    "branches": (torch_models.branches, "none"),
    "branches-training": (torch_models.branches_in_training, "none"),
    "branches-sgd": (torch_models.branches_in_training, "sgd"),
    "attention-adam": (torch_models.attention, "adam"),
    "recurrent-sgd": (torch_models.recurrent, "sgd"),
    "convolutions-sgd": (torch_models.convolutions, "sgd"),
    "batched": (torch_models.batched, "none"),
    "unet-sgd": (unet, "sgd"),
    "gpt-sgd": (gpt, "sgd"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", mostly_slow(CASES, ["branches-sgd", "attention-adam", "batched"]))
def test_repeated_ops_give_the_same_results_in_the_memory_that_is_predicted(case):
    """Random repeats of whatever may run again: views, ops with several results, reads of what is updated later."""
    make, training = CASES[case]
    program = program_of(*make(), training)
    graph = graph_of(program, measured=measured_costs(program))
    unread = held_bytes(program.arguments) - int(graph.persistent.sum())
    for seed in range(3):
        order = with_repeats(graph, seed)
        assert len(order) > graph.num_ops
        module = reorder(program, graph, order)
        check_module(program, module)
        predicted = simulate(Problem(graph, recompute=True), Schedule.single_device(np.array(order))).peak
        assert peak_of_run(program, module) + held_bytes(program.arguments) - unread == predicted


def test_a_run_is_a_copy_and_readers_take_the_latest():
    class Twice(nn.Module):
        def forward(self, x):
            large, small = (x * 2).split([3, 1])
            return large.sum() + 1, small.exp(), large.cos()

    program = program_of(Twice(), torch.randn(4))
    graph = graph_of(program)
    at = {name: op for op, name in enumerate(graph.op_names)}
    order = [*graph.input_order.tolist()]
    last = order.index(at["cos"])
    order[last:last] = [at["mul"], at["split_with_sizes"]]
    nodes = {node.name: node for node in reorder(program, graph, order).graph.nodes}
    assert nodes["split_with_sizes_run_2"].args[0] is nodes["mul_run_2"]
    assert nodes["cos"].args[0].args[0] is nodes["split_with_sizes_run_2"]
    assert nodes["sum_1"].args[0].args[0] is nodes["split_with_sizes"]
    assert "getitem_1_run_2" not in nodes, "what no op takes is not taken"


def test_what_is_written_in_place_later_runs_once():
    """A second run of what made it would give the old values to those who read it after the write."""

    class Written(nn.Module):
        def forward(self, x):
            y = x.exp()
            first = y.sum()
            y.add_(1)
            z = x.cos()
            z[:2].mul_(2)
            return first, y * 2, z + 1, x.sin()

    graph = graph_of(program_of(Written(), torch.randn(4)))
    once = {name for name, is_once in zip(graph.op_names, graph.runs_once, strict=True) if is_once}
    assert once == {"exp", "add_", "cos", "mul_"}


def test_what_reads_the_weight_for_its_own_update_runs_once():
    class Decayed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.ones(4))

        def forward(self, x):
            change = self.total * 0.5
            self.total.add_(change)
            return change + x, x.exp()

    program = program_of(Decayed(), torch.randn(4))
    graph = graph_of(program)
    assert graph.runs_once.tolist() == [name in ("mul", "add_") for name in graph.op_names]
    order = graph.input_order.tolist()
    with pytest.raises(ScheduleError, match="op 'mul' runs twice, but may only run once"):
        check_order(graph, [*order[:2], graph.op_names.index("mul"), *order[2:]])


def write_twice(path, graph, limit=None):
    """Write a schedule that runs every op twice, one time after the other."""
    steps = [{"op": graph.op_names[op], "device": 0} for op in graph.input_order.tolist() * 2]
    head = {"task": "runtime", "devices": 1, "memory_limit": limit, "bandwidth": None, "latency_us": 0.0}
    totals = {"status": "feasible", "peak_memory_per_device": [0], "runtime_us": 0.0, "recompute": True}
    path.write_text(json.dumps({**head, **totals, "steps": steps}))
    return str(path)


def test_a_result_that_is_computed_again_is_the_files_result(tmp_path):
    """Results have the names of the runs that they are taken from."""
    program = program_of(*torch_models.linear())
    graph = graph_of(program)
    exported = export_in_order(program, graph, graph.input_order.tolist() * 2)
    last = graph.op_names[graph.input_order[-1]]
    assert [spec.arg.name for spec in exported.graph_signature.output_specs] == [f"{last}_run_2"]
    schedule, output = write_twice(tmp_path / "twice.json", graph), tmp_path / "o.pt2"
    apply("models.torch_models:linear", schedule, str(output), ImportOptions(), print)
    loaded = torch.export.load(output).module()
    assert f"{last}_run_2" in {node.name for node in loaded.graph.nodes}
    model, x = torch_models.linear()
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


@pytest.mark.slow
def test_measure_runs_a_schedule_with_repeats_and_says_whether_its_limit_was_kept(tmp_path):
    graph = graph_of(program_of(*torch_models.linear()))
    limits = {"kept.json": 10**6, "exceeded.json": 100}
    schedules = [write_twice(tmp_path / name, graph, limit) for name, limit in limits.items()]
    first, *rows = measure("models.torch_models:linear", schedules, 1, ImportOptions(), Observer())
    assert (first.memory_limit, first.keeps_limit) == (None, None)
    assert [(row.memory_limit, row.keeps_limit) for row in rows] == [(10**6, True), (100, False)]
    for row in rows:
        assert row.predicted_peak == row.measured_peak
        assert row.predicted_microseconds == pytest.approx(2 * first.predicted_microseconds)
        assert row.is_equal


def sgd_step(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(inputs):
        optimizer.zero_grad()
        loss = model(inputs).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.slow
@pytest.mark.parametrize(("make", "limit"), [(unet, "97%"), (gpt, "95%")])
def test_a_training_step_keeps_its_limit_and_trains_as_without(make, limit):
    (model, inputs), (other, _) = make(), make()
    plain = schedopt.optimize(sgd_step(other), inputs, evaluations=10)
    limited = schedopt.optimize(sgd_step(model), inputs, memory_limit=limit, evaluations=30_000)
    for _ in range(2):
        assert torch.equal(plain(inputs), limited(inputs))
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))
    assert all_bytes(limited, model, inputs) <= float(limit[:-1]) / 100 * all_bytes(plain, other, inputs)


def all_bytes(step, model, inputs):
    """Return the most bytes that a step holds, with its weights, the gradients that it begins with, and its inputs."""
    peak_of(lambda: step(inputs), "cpu")  # the trace counts the end of gradients only if it saw their begin
    weights = sum(weight.nbytes + weight.grad.nbytes for weight in model.parameters())
    held = weights + held_bytes([*model.buffers(), inputs])
    return held + peak_of(lambda: step(inputs), "cpu")[1]


@pytest.mark.slow
def test_bad_limits_are_one_sentence():
    model, tokens = gpt()
    cases = [
        ({"memory_limit": "1KiB"}, UsageError, "below the .* of weights"),
        ({"memory_limit": "fast"}, UsageError, "memory_limit='fast' is not understood"),
        ({"memory_limit": "80%", "recompute": "yes"}, UsageError, "recompute= is true or false, not 'yes'"),
        ({"memory_limit": "80%", "recompute": False}, ScheduleError, "is not kept: .*; let ops run again"),
        ({"memory_limit": "80%", "method": "lpmf"}, UsageError, "'lpmf' runs every op once"),
        ({"memory_limit": "10%"}, (UsageError, ScheduleError), "limit of .* is (not kept|below)"),
    ]
    for given, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            schedopt.optimize(sgd_step(model), tokens, evaluations=50, **given)
        assert "\n" not in str(caught.value)
