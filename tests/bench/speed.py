"""Speed of the main paths: run `python tests/bench/speed.py [NAME...]` in an environment with schedopt installed.

Each row is measured in one run and says what was timed; ratios compare runs made side by side.
"""

import gc
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SCHEDOPT = shutil.which("schedopt", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "schedopt"
RUNS = 5


def layered(nodes: int, seed: int):
    from schedopt.datasets.layered import LayeredParameters, layered_graph

    return layered_graph(LayeredParameters(nodes=nodes), np.random.default_rng(seed), f"layered-{nodes}")


def synthetic(nodes: int, seed: int):
    from schedopt.datasets.synthetic import SyntheticParameters, synthetic_graph

    parameters = SyntheticParameters(nodes_low=nodes, nodes_high=nodes)
    return synthetic_graph(parameters, "watts-strogatz", np.random.default_rng(seed), f"ws-{nodes}")


def median_cpu(function: Callable[..., object], *arguments: object, runs: int = RUNS) -> str:
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        function(*arguments)
        times.append(time.process_time() - start)
    return f"{statistics.median(times):.3f} s CPU (min {min(times):.3f}, max {max(times):.3f}, {runs} runs)"


def median_wall(command: list[str], runs: int = RUNS, **options) -> str:
    times = []
    for _ in range(runs):
        start = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        times.append(time.monotonic() - start)
    return f"{statistics.median(times):.3f} s wall (min {min(times):.3f}, max {max(times):.3f}, {runs} runs)"


def bench_approximate_dp() -> None:
    """K = 100,000 on 500 layered ops; wanted: 60 s CPU, 2 GiB (paper: 265 s on a V100)."""
    from schedopt.core.problem.problem import Problem
    from schedopt.core.solve.solve import solve

    times, peaks = [], []
    for seed in range(3):
        graph = layered(500, seed)
        start = time.process_time()
        result = solve(Problem(graph), "approximate-dp:beam_size=100000")
        times.append(time.process_time() - start)
        peaks.append(result.simulation.peak)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"approximate-dp K=1e5, 500 ops: {statistics.median(times):.1f} s CPU of 3 graphs, {memory:.2f} GiB resident")


def bench_brkga() -> None:
    """5,000 evaluations on two devices; wanted: 0.12 s CPU at 100 ops, 1.3 s at 1,000."""
    from schedopt.core.problem.problem import Problem
    from schedopt.core.search.search import Search
    from schedopt.core.solve.solve import solve
    from schedopt.core.solvers.placements.chromosomes import Chromosomes

    for nodes in (98, 998):
        graph = synthetic(nodes, 0)
        for task in ("runtime", "memory"):
            problem = Problem(graph, task, devices=2)
            solve(problem, "brkga", evaluations=200)
            print(f"brkga 5,000 evaluations, {graph.num_ops} ops, {task}:", median_cpu(solve, problem, "brkga"))
        with Chromosomes(Search(problem)) as chromosomes:
            population = np.random.default_rng(0).random((50, chromosomes.genes), dtype=np.float32)
            many = np.tile(population, (20, 1))
            start = time.process_time()
            chromosomes.price(many)
            kernel = (time.process_time() - start) / len(many)
        print(f"  one decode, memory: {kernel * 1e6:.1f} us")


def bench_peak_moves() -> None:
    """Moves of the peak's annealing on four devices, from random placements; wanted: a tenth of pricing all of them."""
    from schedopt.core.kernels.cost_model import machine_arrays
    from schedopt.core.kernels.metropolis import Walk
    from schedopt.core.kernels.placements.incremental_peak import (
        Scale,
        anneal_lifetimes,
        new_lifetimes,
        price_lifetimes,
    )
    from schedopt.core.kernels.placements.sequences import Sequence, places_of
    from schedopt.core.problem.problem import Problem

    for graph in (synthetic(98, 0), synthetic(998, 0), layered(1000, 0), layered(10_000, 0)):
        problem, rng, place = Problem(graph, "memory", 4), np.random.default_rng(0), np.argsort(graph.input_order)
        (arrays, machine), rules = machine_arrays(problem), problem.rules
        places = places_of(rules.group, rules.allowed)
        first = graph.input_order.copy(), place.astype(np.int32), rng.integers(0, 4, graph.num_ops, np.int32)
        present, best = (Sequence(*(a.copy() for a in first), np.ones(graph.num_tensors * 4, np.bool_)) for _ in "ab")
        lifetimes, scale = new_lifetimes(arrays, machine), Scale(0.0, 1e6, np.empty(0))
        for _ in range(2):  # the first compiles
            start = time.process_time()
            _, peak = price_lifetimes(arrays, lifetimes, present, scale)
            whole, start = time.process_time() - start, time.process_time()
            walk = Walk(0.01, rng.random((2000, 6)), np.array([0.0, peak]), best, places)
            anneal_lifetimes(arrays, lifetimes, present, scale, machine.first_home, walk)
            move = (time.process_time() - start) / 2000
        print(f"peak, {graph.name}: a move {move * 1e6:.1f} us, a whole sequence {whole * 1e6:.0f} us")


def bench_formats() -> None:
    """50,000 ops; wanted: text 5 s, binary 1 s."""
    from google.protobuf import text_format
    from schedopt.core.files.costgraph import format_graph, parse_graph
    from schedopt.core.files.messages import CostGraphDef
    from schedopt.core.graph.builder import GraphBuilder

    rng = np.random.default_rng(0)
    builder = GraphBuilder("big")
    for op in range(50_000):
        inputs = [(int(i), 0) for i in rng.integers(max(0, op - 50), op, 2)] if op else []
        builder.add_op(f"op{op}", inputs=inputs, outputs=[100], runtime=3)
    graph = builder.build()
    for encoding in ("text", "binary"):
        data = format_graph(graph, encoding)
        print(f"read {encoding}, 50,000 ops:", median_cpu(parse_graph, data, "big"))
        print(f"write {encoding}, 50,000 ops:", median_cpu(format_graph, graph, encoding))
    text = format_graph(graph, "text").decode()
    print("  google.protobuf text_format.Parse alone:", median_cpu(text_format.Parse, text, CostGraphDef(), runs=1))


def bench_large() -> None:
    """100,000 ops load and solve."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.pb"
        subprocess.run([SCHEDOPT, "gen", "layered", "--nodes", "100000", str(path), "--quiet"], check=True)
        for method in ("dfs", "lpmf", "auto"):
            command = [SCHEDOPT, "solve", str(path), "--method", method, "--quiet"]
            command += ["--time-limit", "10s"] if method == "auto" else []
            print(f"solve, 100,000 layered ops, {method}:", median_wall(command, 1))


def bench_command_line() -> None:
    """Wanted: --help 0.25 s; a heuristic solve of 1,000 ops 3 s; the very first run 45 s."""
    print("schedopt --help:", median_wall([SCHEDOPT, "--help"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pb.gz"
        subprocess.run([SCHEDOPT, "gen", "layered", "--nodes", "1000", str(path), "--quiet"], check=True)
        for method in ("dfs", "lpmf"):
            print(f"solve, 1,000 ops, {method}:", median_wall([SCHEDOPT, "solve", str(path), "--method", method]))
        for task in ("memory", "runtime"):
            command = [SCHEDOPT, "solve", str(path), "--task", task, "--time-limit", "1s"]
            empty = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/cache-{task}"}
            print(f"very first solve, {task}, 1 s of search:", median_wall(command, 1, env=empty))


def bench_gen() -> None:
    """1,000 layered 500-op graphs; wanted: 30 s on 2 cores."""
    with tempfile.TemporaryDirectory() as folder:
        command = [SCHEDOPT, "gen", "layered", f"{folder}/graphs", "--count", "1000", "--jobs", "2", "--quiet"]
        print("gen layered, 1,000 graphs of 500 ops, 2 jobs:", median_wall(command, 1))


BENCHMARKS = {name.removeprefix("bench_"): f for name, f in list(globals().items()) if name.startswith("bench_")}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"== {name}: {BENCHMARKS[name].__doc__}")
        BENCHMARKS[name]()
