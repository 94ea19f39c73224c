"""Real models under `torch.compile`: PyTorch's own backends, and the same graphs in schedopt's order.

usage: python examples/experiments/real/compile_backends.py MODEL... [--output FILE, default compile_backends.csv]
       [--runs N, default 3] [--time-limit SECONDS per graph, for the backend schedopt] [--ways WAY..., default all]

A model is a function of models.py (which says what to install) or `module:function`, which returns a model and the
arguments of one call; one in training mode is trained for a step (the sum of the means of its float outputs, backward;
a dict's `loss` if it has one), another is called without gradients. Five ways, each in a fresh process with empty
caches: eager, aot_eager, schedopt (the backend), inductor, and inductor with `schedopt.inductor()`. A row per way:

- `peak`: MiB that PyTorch's allocator holds at most during a step beside what was there before it (parameters, inputs),
- `counted`, `stock`, `bound`: the largest graph's peak in MiB, as counted: in its order, as it was, and the least,
- `first`: seconds of the first step, compilation included; `added`: what schedopt says that it took of them,
- `step`: median seconds of a step afterwards, one thread,
- `equal`: whether losses and gradients are bitwise those of the way before: schedopt's of aot_eager's, the hook's of
  inductor's.

A laptop hour: two to ten minutes per model, most of it Inductor's compiler.
"""

import argparse
import csv
import hashlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("eager", "aot_eager", "schedopt", "inductor", "inductor+schedopt")
REFERENCE = {"schedopt": "aot_eager", "inductor+schedopt": "inductor"}
COLUMNS = ("model", "way", "peak", "counted", "stock", "bound", "graphs", "first", "added", "step", "equal")
FOLDER = Path(__file__).parent


class Records(logging.Handler):
    """Keeps what schedopt logs of each graph."""

    def __init__(self):
        super().__init__()
        self.graphs = []

    def emit(self, record):
        self.graphs += record.args if isinstance(record.args, tuple) else ()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--output", type=Path, default=Path("compile_backends.csv"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measured(options.models[0], options.way, options.runs, options.time_limit)))
        return
    with options.output.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for model in options.models:
            digests = {}
            for way in options.ways:
                row = in_fresh_process(model, way, options)
                digests[way] = row.pop("digest")
                reference = REFERENCE.get(way)
                row |= {"model": model, "way": way}
                row["equal"] = digests[way] == digests[reference] if reference in digests else ""
                rows.writerow(row)
                file.flush()
                print(*(f"{column} {row[column]}" for column in COLUMNS if row[column] != ""), flush=True)


def in_fresh_process(model, way, options):
    """Return the row of one way, run with one thread and caches of its own."""
    command = [sys.executable, __file__, model, "--way", way, "--runs", str(options.runs)]
    if options.time_limit:
        command += ["--time-limit", str(options.time_limit)]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{model}, {way}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(name, way, runs, time_limit):
    """Return what one way takes: a row without the names."""
    import schedopt
    import torch
    from schedopt.core.programs.pytorch.allocator import peak_of
    from schedopt.core.programs.pytorch.dynamo_backend import backend

    records = Records()
    for logger in ("schedopt.torch_compile", "schedopt.inductor"):
        logging.getLogger(logger).setLevel(logging.INFO)
        logging.getLogger(logger).addHandler(records)
    model, args, kwargs = loaded(name)
    call = model
    if way == "schedopt":
        call = torch.compile(model, backend=backend, options={"time_limit": time_limit} if time_limit else None)
    elif way != "eager":
        call = torch.compile(model, backend=way.partition("+")[0])
    if way == "inductor+schedopt":
        schedopt.inductor(True)

    seconds = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        result = step(model, call, args, kwargs)
        seconds.append(time.perf_counter() - start)
    del result
    model.zero_grad(set_to_none=True)
    result, peak = peak_of(lambda: step(model, call, args, kwargs), "cpu")
    largest = max(records.graphs, key=lambda graph: graph.stock_peak, default=None)
    return {
        "peak": mebibytes(peak),
        "counted": mebibytes(largest.peak) if largest else "",
        "stock": mebibytes(largest.stock_peak) if largest else "",
        "bound": mebibytes(largest.bound) if largest else "",
        "graphs": len(records.graphs) or "",
        "first": round(seconds[0], 2),
        "added": round(sum(graph.seconds for graph in records.graphs), 2) if records.graphs else "",
        "step": round(statistics.median(seconds[1:]), 4),
        "digest": digest([result, *(parameter.grad for parameter in model.parameters())]),
    }


def loaded(name):
    """Return a model and the arguments of its call."""
    from schedopt.core.programs.pytorch.sources import as_call, call_function

    sys.path.insert(0, str(FOLDER))
    model, inputs = call_function(name if ":" in name else f"models:{name}", {})
    return model, *as_call(inputs)


def step(model, call, args, kwargs):
    """Train for a step, or call once; the same random numbers each time."""
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(0)
    if not model.training:
        with torch.no_grad():
            return [leaf for leaf in pytree.tree_leaves(dict_of(call(*args, **kwargs))) if is_float(leaf)]
    model.zero_grad(set_to_none=True)
    results = dict_of(call(*args, **kwargs))
    if isinstance(results, dict) and "loss" in results:
        loss = results["loss"]
    else:
        loss = sum(leaf.mean() for leaf in pytree.tree_leaves(results) if is_float(leaf))
    del results
    loss.backward()
    return loss.detach()


def dict_of(result):
    """Return a result of transformers as a plain dict, so that its tensors are found."""
    return dict(result) if isinstance(result, dict) else result


def is_float(value):
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def digest(values):
    """Return what tells tensors apart, to the last bit."""
    from torch.utils import _pytree as pytree

    found = hashlib.sha256()
    for leaf in pytree.tree_leaves(values):
        if leaf is not None:
            found.update(leaf.detach().float().contiguous().numpy().tobytes())
    return found.hexdigest()


def mebibytes(size):
    return round(size / 2**20, 2)


if __name__ == "__main__":
    main()
