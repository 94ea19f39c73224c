"""TFLite models before and after: the arena of TensorFlow Lite for Microcontrollers, predicted and measured.

usage: python examples/experiments/real/tflite_models.py FILE.tflite... [--built N, default 0: models built here, too]
       [--time-limit SECONDS, default 10] [--repeats N, default 1]

Each model is imported, solved, and run as its file is and as `apply` writes it, in processes of their own. Prints a row
per model: ops; the head of the arena in bytes, as TFLM plans the file and with the order and offsets that were found,
each predicted and measured; the tail; whether the peak of the order is proven least and the arena equals it; the
seconds of the search; whether all outputs were bitwise equal. Needs `pip install 'schedopt[tflite]'`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "models"))

COLUMNS = ("model", "ops", "before", "measured", "after", "measured", "change", "tail", "bound", "status", "s", "equal")


def compare(path, time_limit, repeats):
    """Import, solve and measure one model; return its row."""
    from schedopt.core.problem.problem import Problem
    from schedopt.core.programs.options import ImportOptions
    from schedopt.core.programs.runtime import load_runtime
    from schedopt.core.programs.tflite.planner import head_of
    from schedopt.core.programs.tflite.runtime import planned
    from schedopt.core.search.method_spec import parse_method
    from schedopt.core.solve.solve import solve

    runtime = load_runtime(str(path), ImportOptions(), note)
    graph = runtime.graph("roofline", note)
    start = time.monotonic()
    result = solve(Problem(graph), parse_method("auto"), time_limit=time_limit)
    order = result.schedule.op_order().tolist()
    found = runtime.found(False)
    new = planned(runtime.program, graph, order, found.scratch)
    seconds = time.monotonic() - start
    resident = int(graph.persistent.sum())
    least = int(result.lower_bound) - resident
    before = head_of(runtime.program, found.scratch)
    proven = result.status + (", arena too" if new.head == least else "")
    measured, tail, equal = ("", ""), "", "not run"
    if found.head is not None:
        rows = runtime.measure(graph, {"after": order}, repeats, note, lambda *_: None)
        measured = tuple(f"{row.measured_peak - resident:,}" for row in rows)
        tail, equal = f"{found.tail:,}", "yes" if all(row.is_equal for row in rows) else "NO"
    change = f"{100 * (new.head / before - 1):+.1f}%"
    heads = (f"{before:,}", measured[0], f"{new.head:,}", measured[1])
    return (path.stem, graph.num_ops, *heads, change, tail, f"{least:,}", proven, f"{seconds:.1f}", equal)


def note(text):
    if "head" not in text:
        print(text, file=sys.stderr)


def built(count, folder):
    """Write random models with branches, which TFLM runs; return their files."""
    from tflite_models import random_model

    paths = [folder / f"random-{seed}.tflite" for seed in range(count)]
    for seed, path in enumerate(paths):
        path.write_bytes(random_model(seed, ops=10 + 10 * (seed % 10)).build())
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--built", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    print("|".join(("", *COLUMNS, "")))
    print("|" + "---|" * len(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for path in [*arguments.files, *built(arguments.built, Path(folder))]:
            print("|".join(("", *map(str, compare(path, arguments.time_limit, arguments.repeats)), "")), flush=True)


if __name__ == "__main__":
    main()
