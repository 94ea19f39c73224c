"""Five large graphs against every method: is the time limit kept, is Ctrl-C answered, what is resident?

    python tests/bench/loads.py --limit 5                          # all loads and methods, about an hour
    python tests/bench/loads.py --loads fan,star --methods lpmf,auto

Each case is a process of its own, which takes the graph from a pickle, compiles the kernels, and then solves it twice
over: `limit` is the search with the time limit, from its start to its result without verification; `Ctrl-C` is how
long the same search without a limit takes to end after a real SIGINT in its second second. Both want to be read with
what is said of them: wanted are limit + 10% + 0.5 s, and 1 s. Rows go to standard output as they are done, as Markdown.
"""

import argparse
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

FIRST_INTERRUPT = 1.0
GIVEN_UP = 120.0
LOADS = {
    "fan": "one op read by 100,000 ops, which one op reads",
    "star": "one op read by 100,000 ops",
    "chain": "1,000,000 ops in a row",
    "complete": "2,000 ops, each reading all before it",
    "layered": "100,000 ops in 500 layers, 6,000,000 edges",
}


def make(load):
    """Return the graph of a load."""
    from schedopt.core.graph_builder import GraphBuilder

    rng = np.random.default_rng(0)
    builder = GraphBuilder(load)
    add = lambda reads: builder.add_op(  # noqa: E731
        f"op{len(builder._names)}",
        inputs=[(op, 0) for op in reads],
        outputs=[int(rng.integers(1, 10**6))],
        runtime=float(rng.integers(1, 100)),
    )
    if load in ("fan", "star"):
        root = add([])
        leaves = [add([root]) for _ in range(100_000)]
        if load == "fan":
            add(leaves)
    elif load == "chain":
        for op in range(1_000_000):
            add([op - 1] if op else [])
    elif load == "complete":
        for op in range(2_000):
            add(range(op))
    else:
        for layer in range(500):
            before = range(200 * (layer - 1), 200 * layer)
            for _ in range(200):
                add(sorted(rng.choice(before, 60, replace=False).tolist()) if layer else [])
    return builder.build()


def cases(methods):
    """Yield method, devices and task of each case."""
    from schedopt.core.search.registry import METHODS

    for name, method in METHODS.items():
        if (methods and name not in methods) or method.recomputation == "only":
            continue
        if not method.several_devices_only:
            yield name, 1, "memory"
        if name in ("regal", "gas", "idrs", "direct"):
            yield name, 2, "runtime"
        elif not method.memory_on_one_device_only:
            yield name, 64, "runtime"


def run_case(path, name, devices, task, limit):
    """Solve with a limit, or without and with Ctrl-C; prints seconds, resident MiB, and what was found."""
    from schedopt.core.problem import Problem
    from schedopt.core.search.method_spec import parse_method
    from schedopt.core.search.search import Watcher
    from schedopt.core.search.warm_up import warm_up
    from schedopt.core.solve import solve

    graph = pickle.loads(Path(path).read_bytes())
    for array in vars(graph).values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    problem, spec = Problem(graph, task, int(devices)), parse_method(name)
    warm_up(problem, spec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    watcher, pressed = Watcher(), []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, lambda number, frame: watcher.interrupt.set())
    if not limit:
        timer = threading.Timer(FIRST_INTERRUPT, press)
        timer.daemon = True
        timer.start()
    start = time.monotonic()
    result = solve(problem, spec, time_limit=limit or 10**6, watcher=watcher)
    end = start + result.seconds
    seconds = result.seconds if limit else max(0.0, end - pressed[0]) if pressed else 0.0
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    verifying = time.monotonic() - end
    print(f"{seconds:.2f} {before} {resident} {verifying:.1f} {result.value:.6g} {result.found_by}")


def ask(path, name, devices, task, limit):
    """Run a case in a process of its own; returns its figures, or why there are none."""
    command = [sys.executable, __file__, "--case", path, name, str(devices), task, str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIVEN_UP, check=False)
    except subprocess.TimeoutExpired:
        return [f"> {GIVEN_UP:.0f}", "", "", "", "", ""]
    if done.returncode:
        return [(done.stderr.strip().splitlines() or ["killed"])[-1][:90], "", "", "", "", ""]
    return done.stdout.split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--methods", default="")
    parser.add_argument("--case", nargs=5)
    given = parser.parse_args()
    if given.case:
        run_case(*given.case[:4], float(given.case[4]))
        return
    print(f"| load | method | task, devices | limit {given.limit:g} s: wall | Ctrl-C | resident before | at most |"
          " verifying | found |\n|" + " --- |" * 9)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for load in given.loads.split(","):
            path = f"{folder}/{load}"
            Path(path).write_bytes(pickle.dumps(make(load)))
            for name, devices, task in cases([m for m in given.methods.split(",") if m]):
                wall, before, resident, verifying, value, found = ask(path, name, devices, task, given.limit)
                interrupted = ask(path, name, devices, task, 0)[0]
                row = [load, name, f"{task}, {devices}", wall, interrupted]
                row += [f"{before} MiB", f"{resident} MiB", f"{verifying} s", f"{value} by {found}"]
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
