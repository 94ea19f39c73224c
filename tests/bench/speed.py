"""Speed of the main paths: run `python tests/bench/speed.py [NAME...]` in an environment with schedopt installed.

Each row is measured in one run and says what was timed; ratios compare runs made side by side.
"""

import gc
import json
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
    print(
        f"approximate-dp K=1e5, 500 ops: {statistics.median(times):.1f} s CPU (of 3 graphs), {memory:.2f} GiB resident"
    )


def bench_brkga() -> None:
    """5,000 evaluations on two devices; wanted: 0.12 s CPU at 100 ops, 1.3 s at 1,000."""
    from schedopt.core.problem.problem import Problem
    from schedopt.core.search.search import Search
    from schedopt.core.solve.solve import solve
    from schedopt.core.solvers.placements.random_keys import Chromosomes

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
    from schedopt.core.kernels.graph_arrays import graph_arrays
    from schedopt.core.kernels.placements.incremental_peak import Scale, Sequence, new_lifetimes, price_lifetimes
    from schedopt.core.kernels.placements.incremental_peak_moves import PeakWalk, anneal_lifetimes

    for graph in (synthetic(98, 0), synthetic(998, 0), layered(1000, 0), layered(10_000, 0)):
        arrays, rng, place = graph_arrays(graph, 4), np.random.default_rng(0), np.argsort(graph.input_order)
        places = graph.input_order.copy(), place.astype(np.int32), rng.integers(0, 4, graph.num_ops, np.int32)
        present, best = (Sequence(*(a.copy() for a in places), np.ones(graph.num_tensors * 4, np.bool_)) for _ in "ab")
        lifetimes, scale = new_lifetimes(arrays, 4), Scale(0.0, 1e6)
        for _ in range(2):  # the first compiles
            start = time.process_time()
            _, peak = price_lifetimes(arrays, lifetimes, present, scale)
            whole, start = time.process_time() - start, time.process_time()
            anneal_lifetimes(arrays, lifetimes, present, PeakWalk(scale, 0.01, rng.random((2000, 6))), peak, best)
            move = (time.process_time() - start) / 2000
        print(f"peak, {graph.name}: a move {move * 1e6:.1f} us, a whole sequence {whole * 1e6:.0f} us")


def bench_regal() -> None:
    """regal over brkga, 5,000 evaluations, two devices, turn about; wanted: at most 1.2 (paper 1.04 s over 0.89)."""
    import torch
    from schedopt.core.problem.problem import Problem
    from schedopt.core.solve.solve import solve
    from schedopt.core.solvers.placements.beta_quantiles import quantiles
    from schedopt.policies.networks.files import write_network
    from schedopt.policies.regal.actions import beta_parameters
    from schedopt.policies.regal.network import RegalNetwork, RegalNetworkParameters

    start = time.process_time()
    for mean in range(16):
        for variance in range(16):
            quantiles(*beta_parameters(mean, variance, 16))
    print(f"all quantiles of k = 16, which a process computes once: {time.process_time() - start:.3f} s CPU")
    graph = synthetic(98, 0)
    with tempfile.TemporaryDirectory() as folder:
        for task in ("runtime", "memory"):
            for rounds in (2, 16):
                weights = Path(folder) / f"{task}-{rounds}.safetensors"
                torch.manual_seed(0)
                write_network(weights, RegalNetwork(RegalNetworkParameters(task=task, rounds=rounds)))
                problem, times = Problem(graph, task, devices=2), {"brkga": [], f"regal:weights={weights}": []}
                for run in range(4 * RUNS + 1):
                    for method, of_method in times.items():
                        start = time.process_time()
                        solve(problem, method, evaluations=5000, seed=run)
                        of_method.append(time.process_time() - start)
                plain, ours = (statistics.median(of_method[1:]) for of_method in times.values())
                what = f"{graph.num_ops} ops, {task}, T = {rounds}"
                print(f"regal over brkga, {what}: {ours:.3f} s / {plain:.3f} s CPU = {ours / plain:.2f}")


def bench_partial_order() -> None:
    """Closure, reduction and incomparable pairs of 10,000 layered ops; wanted: 0.1 s."""
    from schedopt.core.bounds.partial_order import incomparable, partial_order

    partial_order(layered(100, 0))
    graph = layered(10_000, 0)
    print("partial order, 10,000 ops:", median_cpu(lambda: incomparable(partial_order(graph))))


def bench_op_features() -> None:
    """Inputs of Topoformer with 20 eigenvectors, layered ops; wanted: 0.03 s CPU at 500, 0.5 s at 2,000."""
    from schedopt.policies.topoformer.features import op_features

    for nodes in (100, 500, 2000, 10_000):
        print(f"op features, {nodes} ops:", median_cpu(op_features, layered(nodes, 0)))


def bench_formats() -> None:
    """50,000 ops; wanted: text 5 s, binary 1 s."""
    from google.protobuf import text_format
    from schedopt.core.files.cost_graph_pb2 import CostGraphDef
    from schedopt.core.files.costgraph import format_graph, parse_graph
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


def bench_decoders() -> None:
    """16 orders from priorities; wanted: sample 5 ms, beam 0.1 s (2,000 ops: 0.5 s)."""
    import torch
    from schedopt.core.kernels.orders.priority_orders import ready_steps
    from schedopt.policies.topoformer.priorities import (
        decode_beam,
        decode_greedy,
        decode_samples,
        order_log_probability,
    )

    for nodes in (500, 2000):
        graph, rng = layered(nodes, 0), np.random.default_rng(0)
        priorities = 5 * rng.standard_normal(graph.num_ops)
        orders = decode_samples(graph, priorities, 16, rng).orders
        decode_greedy(graph, priorities)
        decode_beam(graph, priorities, 16)
        print(f"greedy, {nodes} ops:", median_cpu(decode_greedy, graph.buffers, priorities))
        print(f"sample 16, {nodes} ops:", median_cpu(decode_samples, graph.buffers, priorities, 16, rng))
        print(f"beam 16, {nodes} ops:", median_cpu(decode_beam, graph.buffers, priorities, 16))
        rows = torch.from_numpy(priorities).float().repeat(16, 1).requires_grad_()
        first = torch.from_numpy(ready_steps(graph.predecessors, orders))

        def step(rows=rows, orders=torch.from_numpy(orders), first=first) -> None:
            order_log_probability(rows, orders, first).sum().backward()

        print(f"log-probability of 16 orders and its gradient, {nodes} ops:", median_cpu(step))


def bench_encoder() -> None:
    """Topoformer in parts, on one thread; wanted: 10,000 ops within 8 GiB."""
    import torch
    from schedopt.core.bounds.partial_order import dense, partial_order
    from schedopt.core.problem.problem import Problem
    from schedopt.core.solve.solve import solve
    from schedopt.policies.topoformer.batch import encode
    from schedopt.policies.topoformer.features import op_features
    from schedopt.policies.topoformer.network import Network, NetworkParameters

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    small, paper = Network(NetworkParameters()), Network(NetworkParameters(width=256, head_width=64, heads=10))

    def relations(graph) -> object:
        return dense(partial_order(graph).before, graph.num_ops)

    def policy_of(network, encoded):
        with torch.inference_mode():
            return network([encoded])

    def order(graph, decode: str) -> object:
        return getattr(policy_of(small, encode(graph)), decode)(*decoders[decode])

    decoders = {"greedy": (), "sample": (16, rng), "beam": (16,)}
    for decode in decoders:  # compiles
        order(layered(100, 0), decode)
    for nodes in (500, 1000, 2000, 10_000):
        graph, runs = layered(nodes, 0), RUNS if nodes < 10_000 else 1
        print(f"features, {nodes} ops:", median_cpu(op_features, graph, runs=runs))
        print(f"relations, {nodes} ops:", median_cpu(relations, graph, runs=runs))
        encoded = encode(graph)
        for name, network in (("small", small), ("the paper's", paper)):
            print(f"{name} network, {nodes} ops:", median_cpu(policy_of, network, encoded, runs=runs))
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"  so far at most {memory:.2f} GiB resident")
        policy = policy_of(small, encoded)
        for decode, arguments in decoders.items():
            print(f"{decode}, {nodes} ops:", median_cpu(getattr(policy, decode), *arguments, runs=runs))
    graph = layered(500, 0)
    solve(Problem(layered(100, 0)), "approximate-dp:beam_size=100")  # compiles
    start = time.process_time()
    solve(Problem(graph), "approximate-dp:beam_size=10000")
    whole = time.process_time() - start
    print(f"approximate-dp K=1e4, 500 ops: {whole:.1f} s CPU")
    for decode in decoders:
        start = time.process_time()
        for _ in range(RUNS):
            order(graph, decode)
        print(f"  {whole * RUNS / (time.process_time() - start):.0f} times as long as {decode}, features included")


DEEP = """
import torch

def model():
    layers = [layer for _ in range(320) for layer in (torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU())]
    return torch.nn.Sequential(*layers).train(), (torch.randn(4, 8),)
"""


def bench_import() -> None:
    """A training step of more than 5,000 ops; wanted: 30 s."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "deep.py").write_text(DEEP)
        command = [SCHEDOPT, "import", "deep:model", "--training", "sgd", "--output", "deep.pb.gz", "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
        print(f"import, {json.loads(done.stdout)['ops']:,} ops:", median_wall(command, 3, cwd=folder))


BENCHMARKS = {
    name.removeprefix("bench_"): value for name, value in list(globals().items()) if name.startswith("bench_")
}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"== {name}: {BENCHMARKS[name].__doc__}")
        BENCHMARKS[name]()
