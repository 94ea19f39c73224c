"""The instances of One-Shot Priority Sampling (Jeon et al., ICLR 2023): what its rule, draws around it and `auto` give.

usage: python examples/experiments/direct/one_shot.py [--graphs 50] [--ops 500] [--draws 256] [--seed 0]
           [--methods METHOD...] [--time-limit 1] [--write FOLDER]

Layered, Erdos-Renyi (p = 0.05) and stochastic block graphs (4 blocks, 0.3 within, 0.001 across) on six machines: one
of type A, one of B, four of C. An op runs on one type, drawn by the machines' shares; data costs nothing. How long
ops run is our choice: a draw from the mixture of costs of Topoformer's layered graphs. A row tells the mean speed-up
(sum of durations / makespan) with its 95% interval, how much that is above the critical-path rule, and the processor
time. List scheduling: of the ready ops of a type whose machine is idle, the most urgent starts. The draws add Gumbel
noise to the rule's priorities (bottom level over the longest); its scale is the best of SCALES on a fifth as many other
graphs. --methods are schedopt's; `auto` has --time-limit, 0 for none.
--write writes the graphs of each kind, to train on, and no table.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import schedopt
from schedopt.core.solvers.placements.chromosomes import bottom_levels
from schedopt.core.solvers.placements.list_schedulers import starting_orders
from schedopt.datasets.layered import LayeredParameters, draw_costs, layered_graph
from schedopt.datasets.synthetic import SyntheticParameters, synthetic_graph

KINDS = ("layered", "erdos-renyi", "stochastic-block")
TYPES, MACHINES = ("A", "B", "C"), (1, 1, 4)
SCALES = (0.003, 0.01, 0.02, 0.03, 0.05, 0.1)
PAPER = {
    "layered": (4.314, 4.513, 4.603),
    "erdos-renyi": (4.973, 5.113, 5.178),
    "stochastic-block": (4.664, 4.835, 4.956),
}
METHODS = ("heft", "direct:decode=rule", "direct:decode=greedy", "direct:width=256")


def drawn(kind: str, ops: int, rng: np.random.Generator) -> schedopt.CostGraph:
    """Return a graph of a kind, in which data is of no size."""
    if kind == "layered":
        plain = layered_graph(LayeredParameters(nodes=ops), rng)
        edges, first = np.stack(plain.edges), 0
    else:
        plain = synthetic_graph(SyntheticParameters(nodes_low=ops, nodes_high=ops, block_across=0.001), kind, rng)  # type: ignore[arg-type]
        edges, first = np.stack(plain.edges), 1  # without source and sink
    edges = edges[:, ((edges >= first) & (edges < first + ops)).all(0)] - first
    durations = draw_costs(LayeredParameters(), ops, rng) / LayeredParameters().unit
    builder, before = schedopt.GraphBuilder(kind), [edges[0, edges[1] == op].tolist() for op in range(ops)]
    for op in range(ops):
        builder.add_op(
            f"op{op}", inputs=[(b, 0) for b in sorted(before[op])], outputs=[0], runtime=float(durations[op])
        )
    return builder.build()


def instance(kind: str, ops: int, rng: np.random.Generator) -> schedopt.Problem:
    """Return a problem."""
    graph = drawn(kind, ops, rng)
    types = rng.choice(len(TYPES), ops, p=np.array(MACHINES) / sum(MACHINES))
    devices = [
        schedopt.Device(f"{name}{at}", name) for name, many in zip(TYPES, MACHINES, strict=True) for at in range(many)
    ]
    times = {
        f"op{op}": {t: float(graph.runtime[op]) if at == types[op] else None for at, t in enumerate(TYPES)}
        for op in range(ops)
    }
    machine = schedopt.Machine(tuple(devices), transfers="beside", contention=False, op_times=times)
    return schedopt.Problem(graph, "runtime", machine=machine)


def list_scheduled(problem: schedopt.Problem, draws: int, scale: float, rng: np.random.Generator) -> float:
    """Return the least makespan of the critical-path rule and of draws around it."""
    levels = bottom_levels(problem.graph, problem.graph.runtime)
    rows = levels / levels.max() + scale * np.vstack([np.zeros(len(levels)), rng.gumbel(size=(draws, len(levels)))])
    return float(starting_orders(problem, rows)[1].min())


def main() -> None:
    """Print a table per kind of graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("graphs", 50), ("ops", 500), ("draws", 256), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--time-limit", type=float, default=1.0, help="seconds of auto")
    parser.add_argument("--write", type=Path, help="a folder for the graphs, to train on")
    given = parser.parse_args()
    for number, kind in enumerate(KINDS):
        if given.write:
            given.write.mkdir(parents=True, exist_ok=True)
            for at in range(given.graphs):
                graph = drawn(kind, given.ops, np.random.default_rng([given.seed, number, at]))
                schedopt.write_graph(graph, given.write / f"{kind}-{at}.pb.gz")
            continue
        rngs = [np.random.default_rng([given.seed, number, at]) for at in range(given.graphs + given.graphs // 5)]
        cases = [instance(kind, given.ops, rng) for rng in rngs]
        others = list(zip(cases[given.graphs :], rngs[given.graphs :], strict=True))
        found = {s: np.mean([list_scheduled(case, given.draws, s, rng) for case, rng in others] or [0]) for s in SCALES}
        scale, cases = min(found, key=lambda s: found[s]), cases[: given.graphs]
        total = np.array([problem.graph.runtime.sum() for problem in cases])
        rows: dict[str, tuple[Any, float]] = {}
        for name, draws in (
            ("critical path, list scheduling", 0),
            (f"best of {given.draws} draws, scale {scale}", given.draws),
        ):
            start = time.process_time()
            values = [list_scheduled(case, draws, scale, rng) for case, rng in zip(cases, rngs, strict=False)]
            rows[name] = np.array(values), time.process_time() - start
        bounds = np.zeros(len(cases))
        for method in (*given.methods, *[f"auto, {given.time_limit:g} s"] * (given.time_limit > 0)):
            is_auto = method.startswith("auto")
            start, values = time.process_time(), []
            for at, problem in enumerate(cases):
                seconds = given.time_limit if is_auto else None
                result = schedopt.solve(problem, "auto" if is_auto else method, seed=given.seed, time_limit=seconds)
                values.append(result.value)
                bounds[at] = max(bounds[at], result.lower_bound)
            rows[method] = np.array(values), time.process_time() - start
        rows["the bound"] = bounds, 0.0
        print(
            f"{kind}: {len(cases)} graphs of {given.ops} ops; the paper: CP, greedy, best of 256 {PAPER[kind]}",
            flush=True,
        )
        rule = total / next(iter(rows.values()))[0]
        for name, (values, seconds) in rows.items():
            speedup, gain = total / values, 100 * (total / values / rule - 1)
            print(f"  {name:32} {mean(speedup, 3)}  {mean(gain, 2)}%  {1000 * seconds / len(cases):.0f} ms", flush=True)


def mean(values: Any, digits: int) -> str:
    """Return a mean and its 95% interval."""
    return f"{values.mean():.{digits}f} ± {1.96 * values.std(ddof=1) / len(values) ** 0.5:.{digits}f}"


if __name__ == "__main__":
    main()
