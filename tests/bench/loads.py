"""Five large graphs against every method: is the time limit kept, is Ctrl-C answered, what is resident?

    python tests/bench/loads.py --limit 5 --out loads.jsonl                         # all loads and methods
    python tests/bench/loads.py --loads fan,star --methods lpmf,auto --out loads.jsonl
    python tests/bench/loads.py --out loads.jsonl --table                           # what was found, as Markdown

Each case is a process of its own, forked from one that has the graph and compiled the kernels. All seconds are seconds
of processor time, the limit's too, so that other work on the machine changes nothing: the process takes its own
processor time for the clock. It searches once with the limit, and once without for each moment at which Ctrl-C comes, a
signal that the system sends when so much was computed. Both end before the schedule is verified. `over` is what was
computed after the limit, `Ctrl-C` what was computed after the signal, the most of all moments. Wanted are 10% of the
limit + 0.5 s, and 1 s. A case that is in the file of `--out` is not done again.
"""

import argparse
import json
import os
import resource
import signal
import time
import traceback
from pathlib import Path

import numpy as np

PRESSED = (0.3, 1.0, 3.0)
GIVEN_UP = 60.0
MOST_BYTES = 12 << 30
SEVERAL = 64
LOADS = {
    "fan": "one op read by 100,000 ops, which one op reads",
    "star": "one op read by 100,000 ops",
    "chain": "1,000,000 ops in a row",
    "complete": "2,000 ops, each reading all before it",
    "layered": "100,000 ops in 500 layers, 6,000,000 edges",
}


def make(load):
    """Return the graph of a load."""
    from schedopt.core.graph.builder import GraphBuilder

    rng = np.random.default_rng(0)
    builder = GraphBuilder(load)

    def add(op, reads):
        size, runtime = int(rng.integers(1, 10**6)), float(rng.integers(1, 100))
        return builder.add_op(f"op{op}", inputs=[(read, 0) for read in reads], outputs=[size], runtime=runtime)

    if load in ("fan", "star"):
        for op in range(100_001):
            add(op, [0] if op else [])
        if load == "fan":
            add(100_001, range(1, 100_001))
    elif load == "chain":
        for op in range(1_000_000):
            add(op, [op - 1] if op else [])
    elif load == "complete":
        for op in range(2_000):
            add(op, range(op))
    else:
        for op in range(100_000):
            before = 200 * (op // 200 - 1)
            add(op, before + np.sort(rng.choice(200, 60, replace=False)) if before >= 0 else [])
    return builder.build()


def cases(methods):
    """Yield method, devices and task of each case."""
    from schedopt.core.search.registry import METHODS

    for name, method in METHODS.items():
        if (methods and name not in methods) or method.recomputation == "only":
            continue
        if not method.several_devices_only:
            yield name, 1, "memory"
        if not method.memory_on_one_device_only:
            yield name, SEVERAL, "runtime"
        if method.several_devices_only:
            yield name, 2, "runtime"


def search(problem, spec, limit, pressed, pipe):
    """Search in this process, on its processor's clock; write what was found and used as JSON."""
    from schedopt.core.base.errors import SchedoptError
    from schedopt.core.search.search import Watcher
    from schedopt.core.solve import solve as solving

    warm_up, watcher, told = solving.warm_up, Watcher(), {}

    def start(*arguments):
        warm_up(*arguments)
        told.update(start=time.process_time(), before=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
        signal.setitimer(signal.ITIMER_PROF, pressed)

    def end(search, spec, seed, seconds):
        signal.setitimer(signal.ITIMER_PROF, 0)
        told.update(seconds=time.process_time() - told["start"], value=search.best_value, found_by=search.found_by)
        told.update(resident=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, heard=watcher.interrupt.is_set())

    solving.warm_up, solving._result, time.monotonic = start, end, time.process_time
    signal.signal(signal.SIGPROF, lambda number, frame: watcher.interrupt.set())
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + GIVEN_UP), resource.RLIM_INFINITY))
    try:
        solving.solve(problem, spec, time_limit=limit, watcher=watcher)
    except SchedoptError as error:
        told["refused"] = str(error)
    except MemoryError:
        told["refused"] = "more than 12 GiB"
    pipe.write(json.dumps(told))
    pipe.close()


def run(problem, spec, limit, pressed):
    """Search in a forked process with a limit, or with Ctrl-C after some seconds; returns what it told."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            search(problem, spec, limit, pressed, os.fdopen(writing, "w"))
        except BaseException:  # is printed, and the parent goes on
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = json.loads(pipe.read() or f'{{"seconds": {GIVEN_UP}}}')
    os.waitpid(pid, 0)
    return told


def measured(problem, spec, limit):
    """Return the figures of a case."""
    row = run(problem, spec, limit, 0)
    row["interrupted"] = 0.0
    for pressed in () if "refused" in row else PRESSED:
        told = run(problem, spec, 10.0**6, pressed)
        if not told.get("heard", True):  # it ended by itself before
            break
        row["interrupted"] = max(row["interrupted"], told.get("seconds", 0.0) - pressed)
    return row


def line_of(row):
    """Return a row as a line of a Markdown table."""
    start = f"| {row['load']} | `{row['method']}` | {row['task']}, {row['devices']} | {row['limit']:g} s |"
    if "refused" in row:
        return f"{start} | | | | | {row['refused']} |"
    found = f"{row['value']:.4g} by `{row['found_by']}`" if "value" in row else "killed"
    over = max(0.0, row["seconds"] - row["limit"])
    return (f"{start} {row['seconds']:.1f} s | {over:.2f} s | {row['interrupted']:.2f} s |"
            f" {row.get('before', '')} MiB | {row.get('resident', '')} MiB | {found} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--methods", default="")
    parser.add_argument("--out", type=Path, default=Path("loads.jsonl"))
    parser.add_argument("--table", action="store_true", help="Print what is in the file of --out, and stop.")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    print("| load | method | task, devices | limit | used | over | Ctrl-C | before | resident | found |")
    print("|" + " --- |" * 10)
    print("".join(line_of(row) + "\n" for row in rows if row["limit"] == given.limit), end="", flush=True)
    if given.table:
        return
    from schedopt.core.base.errors import SchedoptError
    from schedopt.core.problem.problem import Problem
    from schedopt.core.search.method_spec import parse_method
    from schedopt.core.search.warm_up import warm_up

    known = {(row["load"], row["method"], row["devices"], row["limit"]) for row in rows}
    for load in given.loads.split(","):
        todo = [case for case in cases([m for m in given.methods.split(",") if m])
                if (load, case[0], case[1], given.limit) not in known]  # fmt: skip
        graph = make(load) if todo else None
        for name, devices, task in todo:
            problem, spec = Problem(graph, task, devices), parse_method(name)
            row = {"load": load, "method": name, "devices": devices, "task": task, "limit": given.limit}
            try:
                warm_up(problem, spec)
                row |= measured(problem, spec, given.limit)
            except SchedoptError as error:
                row["refused"] = str(error)
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(line_of(row), flush=True)


if __name__ == "__main__":
    main()
