"""TFLite models: the arena that `fit` says they need, beside the least in which the runtime starts and runs.

usage: python examples/experiments/edge/least_arenas.py FILE.tflite... [--built N, default 0: models built here, too]

The least is found by bisection of all sizes from nothing, each tried in a process of its own. Prints a row per order
of each model, as its file is and, where less is found, as `apply` writes it: the bound of its peak; what `fit` says;
the least that runs; of the 16 sizes below the answer those that run, and of the 16 from it on those that do not.
Needs `pip install 'schedopt[tflite]'`. A row takes some seconds.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from bisect import bisect_left
from pathlib import Path

import numpy as np
import schedopt

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "models"))

ROOM = "64MiB"
BESIDE = 16  # sizes below and above the answer that are tried one by one


def runs(path, arena):
    """Whether a model starts and runs in an arena, in a process of its own: it may crash."""
    from tflite_micro import runtime

    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        interpreter = runtime.Interpreter.from_file(str(path), arena_size=arena)
        for number in range(64):
            try:
                details = interpreter.get_input_details(number)
            except (IndexError, ValueError):
                break
            interpreter.set_input(np.zeros(details["shape"], details["dtype"]), number)
        interpreter.invoke()
    except BaseException:
        os._exit(1)
    os._exit(0)


def row(name, path, bound, answer, is_predicted):
    """Return a row of the table."""
    if is_predicted:
        return (name, bound, f"{answer:,} (predicted)", "not run", "", "")
    least = bisect_left(range(4 * answer + 65536), True, key=lambda arena: runs(path, arena))
    below = sum(runs(path, answer - 1 - at) for at in range(min(BESIDE, answer)))
    above = sum(not runs(path, answer + at) for at in range(BESIDE))
    return (name, bound, f"{answer:,}", f"{least:,}", below, above)


def rows(path, folder):
    """Ask `fit` of a model, and of the next best order; yield a row for each."""
    fit = schedopt.fit(path, ROOM, time_limit="1s")
    way = fit.ways[0]
    yield row(path.stem, path, f"{way.lower_bound:,}", way.peak, fit.left_out)
    if fit.left_out:
        return
    other = next((w for w in schedopt.fit(path, way.peak - 1, time_limit="1s").ways if w.verdict == "yes"), None)
    if other is not None:
        written = folder / f"{path.stem}-ordered.tflite"
        schedule = folder / f"{path.stem}.json"
        schedule.write_text(other.result.json())
        command = [sys.executable, "-m", "schedopt", "apply", str(path), str(schedule), "--output", str(written)]
        subprocess.run(command, check=True, capture_output=True)
        yield row(f"{path.stem}, {other.name}", written, f"{other.lower_bound:,}", other.peak, False)


def built(count, folder):
    """Write random models with branches, which TFLM runs; yield their files."""
    from tflite_models import random_model

    for seed in range(count):
        path = folder / f"random-{seed}.tflite"
        path.write_bytes(random_model(seed, ops=4 + 4 * (seed % 8)).build())
        yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--built", type=int, default=0)
    arguments = parser.parse_args()
    print("| model, order | bound | `fit` | least that runs | less that runs | more that does not |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for path in [*arguments.files, *built(arguments.built, Path(folder))]:
            for found in rows(path, Path(folder)):
                print("|", " | ".join(map(str, found)), "|", flush=True)


if __name__ == "__main__":
    main()
