"""Real programs, run as they are, by `schedopt.optimize`, and under `torch.compile`; prints a table of each.

usage: python examples/experiments/real/compile_backends.py [MODEL..., default all of everyday.py]
       [--output FILE, default compile_backends.csv; rows that are there are not run again]
       [--runs N, default 5] [--time-limit SECONDS per graph, for optimize and the backend] [--ways WAY..., default all]
       [--without-kernels: Inductor's own are not compiled and do nothing; what is allocated stays, results do not]

A model is a function of models.py (which says what to install) or `module:function`, which returns a model and the
arguments of one call. One in training mode does a step of SGD (forward, backward, update, gradients dropped; the loss
is its result's `loss`, or the sum of the means of its float outputs); another is called without gradients. Six ways,
each in a fresh process that compiles its graphs (Inductor's kernels are compiled once for both of its ways): eager,
optimize (of a training model: the whole step), aot_eager, schedopt (the backend), inductor, and inductor with
`schedopt.inductor()`. A row per way:

- `peak`: MiB that PyTorch's allocator holds at most during a step, beside what is there before (parameters, inputs),
- `held`: MiB that is there before,
- `counted`, `stock`, `bound`: the largest graph's peak in MiB, as counted: in its order, as it was, and the least;
  what is held is part of it,
- `first`: seconds of the first step, compilation included; `added`: what schedopt took of them, or before them,
- `step`: median seconds of a step afterwards, one thread,
- `equal`: whether results, parameters and buffers after all steps are bitwise those of the way before: optimize's of
  eager's, schedopt's of aot_eager's, the hook's of inductor's; `digest` is what tells them apart,
- `error`: the last line of what failed.

One to ten minutes per model, most of it the C++ compiler of Inductor's kernels.
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

WAYS = ("eager", "optimize", "aot_eager", "schedopt", "inductor", "inductor+schedopt")
REFERENCE = {"optimize": "eager", "schedopt": "aot_eager", "inductor+schedopt": "inductor"}
NUMBERS = ("peak", "held", "counted", "stock", "bound", "graphs", "first", "added", "step")
COLUMNS = ("model", "way", *NUMBERS, "equal", "digest", "error")
FOLDER = Path(__file__).parent


class Records(logging.Handler):
    """Keeps what schedopt logs of each graph."""

    def __init__(self):
        super().__init__()
        self.graphs = []
        for name in ("schedopt.optimize", "schedopt.torch_compile", "schedopt.inductor"):
            logging.getLogger(name).setLevel(logging.INFO)
            logging.getLogger(name).addHandler(self)

    def emit(self, record):
        self.graphs += record.args if isinstance(record.args, tuple) else ()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--output", type=Path, default=Path("compile_backends.csv"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--without-kernels", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measured(options.models[0], options)))
        return
    models = options.models or everyday()
    for model in models:
        with tempfile.TemporaryDirectory() as cache:
            for way in options.ways:
                if (model, way) not in rows_of(options.output):
                    add(options.output, {"model": model, "way": way, **in_fresh_process(model, way, options, cache)})
    print_tables(models, rows_of(options.output))


def everyday():
    """Return the names of the twenty programs."""
    sys.path.insert(0, str(FOLDER))
    import everyday as programs

    return [f"everyday:{name}" for name in programs.NAMES]


def rows_of(path):
    """Return the rows that are there, by model and way."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["model"], row["way"]): row for row in csv.DictReader(file)}


def add(path, row):
    """Append a row, once it is known whether its results are those of the way before."""
    before = rows_of(path).get((row["model"], REFERENCE.get(row["way"])), {})
    known = before.get("digest") and row.get("digest")
    row["equal"] = row["digest"] == before["digest"] if known else ""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, restval="")
        if is_new:
            rows.writeheader()
        rows.writerow(row)
    shown = (f"{column} {row[column]}" for column in COLUMNS if row.get(column, "") != "" and column != "digest")
    print(*shown, file=sys.stderr, flush=True)


def in_fresh_process(model, way, options, cache):
    """Return the row of one way, run with one thread."""
    command = [sys.executable, __file__, model, "--way", way, "--runs", str(options.runs)]
    command += ["--without-kernels"] * options.without_kernels
    if options.time_limit:
        command += ["--time-limit", str(options.time_limit)]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def measured(name, options):
    """Return what one way takes: a row without the names."""
    import torch
    from schedopt.core.programs.pytorch.run import peak_of

    records = Records()
    model, inputs, step, added = prepared(name, options.way, options.time_limit)
    is_empty = options.without_kernels and options.way.startswith("inductor")
    if is_empty:
        leave_out_kernels()
    seconds = []
    for _ in range(options.runs + 1):
        torch.manual_seed(0)
        start = time.perf_counter()
        result = step()
        seconds.append(time.perf_counter() - start)
    del result
    torch.manual_seed(0)
    result, peak = peak_of(step, "cpu")
    kept = [*model.parameters(), *model.buffers()]
    largest = max(records.graphs, key=lambda graph: graph.stock_peak, default=None)
    row = {
        "peak": mebibytes(peak),
        "held": mebibytes(size_of([*kept, inputs])),
        "first": round(seconds[0], 2),
        "step": "" if is_empty else round(statistics.median(seconds[1:]), 4),
        "digest": "" if is_empty else digest([result, *kept]),
    }
    if largest:
        counted = {"counted": largest.peak, "stock": largest.stock_peak, "bound": largest.bound}
        row |= {key: mebibytes(size) for key, size in counted.items()}
        row |= {"graphs": len(records.graphs)}
        row |= {"added": round(added or sum(graph.seconds for graph in records.graphs), 2)}
    return row


def prepared(name, way, time_limit):
    """Return a model, its inputs, one step of it, one way, and the seconds that `optimize` took."""
    import schedopt
    import torch
    from schedopt.core.programs.pytorch.dynamo_backend import backend
    from schedopt.core.programs.pytorch.program import as_call, call_function

    sys.path.insert(0, str(FOLDER))
    model, inputs = call_function(name if ":" in name else f"models:{name}", {})
    args, kwargs = as_call(inputs)
    call = model
    if way == "schedopt":
        call = torch.compile(model, backend=backend, options={"time_limit": time_limit} if time_limit else None)
    elif way not in ("eager", "optimize"):
        call = torch.compile(model, backend=way.partition("+")[0])
    if way == "inductor+schedopt":
        schedopt.inductor(True)
    program, added = training_step(model, call) if model.training else call, None
    if way == "optimize":
        start = time.perf_counter()
        program = schedopt.optimize(program, inputs, time_limit=time_limit)
        added = time.perf_counter() - start

    def step():
        with torch.set_grad_enabled(model.training):
            return program(*args, **kwargs)

    return model, inputs, step, added


def leave_out_kernels():
    """Let Inductor's own kernels do nothing, and be compiled by nobody."""
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.cpp_pybinding = lambda *_: lambda *_: None


def training_step(model, call):
    """Return a function that trains the model for a step and returns the loss."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(*args, **kwargs):
        loss = loss_of(call(*args, **kwargs))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def loss_of(result):
    """Return a result's loss, or the sum of the means of its float tensors."""
    if isinstance(result, dict) and "loss" in result:
        return result["loss"]
    return sum(leaf.mean() for leaf in tensors_of(result) if leaf.is_floating_point())


def tensors_of(values):
    """Return the tensors in a nest of tuples, dicts and dataclasses, as transformers' results are, too."""
    import torch

    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif hasattr(values, "__dataclass_fields__"):
        values = vars(values).values()
    elif not isinstance(values, list | tuple):
        return []
    return [tensor for value in values for tensor in tensors_of(value)]


def size_of(values):
    """Return the bytes of the tensors' storages."""
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors_of(values)}
    return sum(storages.values())


def digest(values):
    """Return what tells tensors apart, to the last bit."""
    import torch

    found = hashlib.sha256()
    for tensor in tensors_of(values):
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def mebibytes(size):
    return round(size / 2**20, 2)


def print_tables(models, rows):
    """Print three tables: optimize beside eager, the backend beside aot_eager, and the hook beside Inductor."""
    for way, before in REFERENCE.items():
        eager = "eager, " * (before == "aot_eager")
        print(f"\n| model | {eager}{before} | {way} | saved | counted | bound | step, ms | seconds | equal |")
        print("|---|---|---|---|---|---|---|---|---|")
        for model in models:
            new, old = rows.get((model, way)), rows.get((model, before))
            if new and old:
                print(line(model, old, new, rows.get((model, "eager")) if eager else None))


def line(model, old, new, eager):
    """Return a line of a table: how a model is one way, and the way before."""
    name = model.rpartition(":")[2]
    if error := new["error"] or old["error"]:
        return f"| {name} | {error} |"
    peak, before = float(new["peak"]), float(old["peak"])
    # With `optimize` the one graph is the whole step, so that beside what is held its peak is what is measured.
    held = float(new["held"]) if new["way"] == "optimize" else 0.0
    counted = [f"{float(new[key]) - held:,.1f}" for key in ("stock", "counted", "bound") if new[key]] or ["-"] * 3
    first = f"{float(eager['peak']):,.1f}, " if eager else ""
    cells = (
        f"{first}{before:,.1f}",
        f"{peak:,.1f}",
        f"{1 - peak / before:.1%}",
        f"{counted[0]} → {counted[1]}",
        counted[2],
        " → ".join(f"{1000 * float(row['step']):,.0f}" for row in (old, new) if row["step"]) or "-",
        f"{float(new['added']):.1f}" if new["added"] else "-",
        {"True": "yes", "False": "no"}.get(new["equal"], "-"),
    )
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
