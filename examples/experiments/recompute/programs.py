"""Training steps under a memory budget: PyTorch's own ways beside schedopt's recomputation, at the same peaks.

usage: python examples/experiments/recompute/programs.py MODEL... [--output FILE, default recompute_programs.csv]
       [--budgets B..., default 0.1 to 1] [--backend NAME, default aot_eager] [--runs N, default 15]
       [--time-limit SECONDS per peak, default 30]

A model is `module:function`, which returns a model whose first output is its loss and the arguments of one call; those
of real/everyday.py and real/models.py, which say what to install, are found by `everyday:gpt_training` and the like.
A step is forward, backward and SGD without momentum, on one thread. All ways are in one process: every round runs a
step of each, in turn, so that what slows a round slows all of them. A row per way:

- `eager`: as it is; `checkpoint`: every block of a list of blocks under `torch.utils.checkpoint`,
- `functorch B`: `torch.compile` with `torch._functorch.config.activation_memory_budget` B,
- `schedopt eager`, `schedopt checkpoint`, `schedopt B`: `schedopt.optimize` with that way's measured peak as its limit,
- `schedopt half`: with half of eager's peak as its limit; `again` has the bound on the added time, or why it cannot be.

- `peak`: MiB that PyTorch's allocator holds at most during a step beside what was there before it,
- `limit`: for schedopt, the most that it was allowed, likewise; `kept`: whether the measured peak is no higher,
- `seconds`: the median of the rounds; `ratio`: the median of its ratio to eager in the same round,
- `first`: seconds until the first step is done, search included; `again`: what schedopt says of the limit.

A way that fails has its reason in `again`. The rows of a model are written when all are there; one that is in the
output is not run again, so that the same command goes on with the next.
"""

import argparse
import contextlib
import copy
import csv
import statistics
import sys
import time
from functools import partial
from io import StringIO
from pathlib import Path

import schedopt
import torch
from schedopt.core.programs.pytorch.program import as_call, call_function
from schedopt.core.programs.pytorch.run import held_bytes, peak_of
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

COLUMNS = ("model", "way", "peak", "limit", "kept", "seconds", "ratio", "first", "again")
BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RATE = 0.01


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--output", type=Path, default=Path("recompute_programs.csv"))
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--time-limit", type=float, default=30.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 10 * len(options.budgets)  # one entry each, of the same functions
    sys.path.insert(0, str(Path(__file__).parent.parent / "real"))
    done = set()
    if options.output.exists():
        with options.output.open(newline="") as file:
            done = {row["model"] for row in csv.DictReader(file)}
    for model in options.models:
        if model not in done:
            write(options.output, rows_of(model, options))


def write(path, rows):
    """Add the rows of a model to the table, all at once."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        if is_new:
            table.writeheader()
        table.writerows(rows)


def rows_of(name, options):
    """Run all ways of a model; return their rows."""
    model, inputs = call_function(name, {})
    args, kwargs = as_call(inputs)
    held = held_bytes([*model.parameters(), *model.buffers(), *pytree.tree_leaves((args, kwargs))])
    rows, steps = [], {}

    def add(way, make, limit=None):
        """Make a way's step, and take its peak; return that in bytes, or None if it fails."""
        row = {"model": name, "way": way, "limit": "" if limit is None else mebibytes(limit)}
        rows.append(row)
        start = time.perf_counter()
        try:
            step, row["again"] = make()
            step()
        except Exception as error:  # of PyTorch's own ways, too: the table says that it failed, and why
            row["again"] = " ".join(str(error).split())[:200]
            print(name, way, row["again"], flush=True)
            return None
        row["first"] = round(time.perf_counter() - start, 2)
        step()
        _, peak = peak_of(step, "cpu")
        row["peak"] = mebibytes(peak)
        row["kept"] = "" if limit is None else peak <= limit
        steps[way] = step
        print(*(f"{column} {row[column]}" for column in COLUMNS if row.get(column, "") != ""), flush=True)
        return peak

    peaks = {"eager": add("eager", lambda: (eager(copy.deepcopy(model), args, kwargs), ""))}
    peaks["checkpoint"] = add("checkpoint", lambda: (eager(with_checkpoints(copy.deepcopy(model)), args, kwargs), ""))
    for budget in options.budgets:
        make = partial(compiled, model, args, kwargs, options.backend, budget)
        peaks[f"{budget:g}"] = add(f"functorch {budget:g}", make)
    by_peak = {}
    for way, peak in peaks.items():
        if peak is not None:
            by_peak.setdefault(peak, way)  # one search for ways of one peak
    if peaks["eager"] is not None:
        by_peak.setdefault(peaks["eager"] // 2, "half")
    for peak, way in sorted(by_peak.items(), reverse=True):
        add(f"schedopt {way}", partial(ours, model, inputs, peak + held, options.time_limit), peak)
    seconds = in_rounds(steps, options.runs)
    for row in rows:
        if row["way"] in seconds:
            taken = seconds[row["way"]]
            ratios = [one / other for one, other in zip(taken, seconds["eager"], strict=True)]
            row["seconds"], row["ratio"] = round(statistics.median(taken), 5), round(statistics.median(ratios), 4)
            print(name, row["way"], "seconds", row["seconds"], "ratio", row["ratio"], flush=True)
    return rows


def in_rounds(steps, runs):
    """Return the seconds of each way's steps, a step of each per round, which begins with another way each time."""
    seconds = {way: [] for way in steps}
    ways = list(steps)
    for number in range(runs):
        shift = number % len(ways)
        for way in (*ways[shift:], *ways[:shift]):
            start = time.perf_counter()
            steps[way]()
            seconds[way].append(time.perf_counter() - start)
    return seconds


def eager(model, args, kwargs, call=None):
    """Return a step of PyTorch: forward, backward, update."""
    call = model if call is None else call
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, foreach=False)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = pytree.tree_leaves(call(*args, **kwargs))[0]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def has_blocks(module):
    """Return whether a child of a module has children."""
    return any(any(child.children()) for child in module.children())


def with_checkpoints(model):
    """Compute again in the backward pass what each outermost block of a list of blocks saves."""
    blocks = []
    for parent in model.modules():
        if isinstance(parent, (nn.ModuleList, nn.Sequential)):
            for child in parent.children():
                is_list = isinstance(child, nn.ModuleList) or (isinstance(child, nn.Sequential) and has_blocks(child))
                if any(child.children()) and not is_list:
                    blocks.append(child)
    inner = {module for block in blocks for module in block.modules() if module is not block}
    for block in blocks:
        if block not in inner:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return model


def compiled(model, args, kwargs, backend, budget):
    """Return a step whose passes `torch.compile` has parted for a budget of saved activations."""
    compiler = torch._dynamo.lookup_backend(backend)
    mine = copy.deepcopy(model)
    # A backend of its own, without which this copy would be taken for one that is compiled already.
    step = eager(mine, args, kwargs, torch.compile(mine, backend=lambda graph, inputs: compiler(graph, inputs)))
    with torch._functorch.config.patch(activation_memory_budget=budget, enable_autograd_cache=False):
        step()
    return step, ""


def ours(model, inputs, limit, seconds):
    """Return a step in an order that keeps a limit, and what is said of it."""
    mine = copy.deepcopy(model)
    with contextlib.redirect_stdout(StringIO()) as said:
        planned = schedopt.optimize(
            eager(mine, *as_call(inputs)), (), memory_limit=limit, time_limit=seconds, verbose=True
        )
    return planned, said.getvalue().strip().partition(". ")[2]


def mebibytes(size):
    return round(size / 2**20, 3)


if __name__ == "__main__":
    main()
