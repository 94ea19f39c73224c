"""Oracles of BRKGA, choices that know more than a network could: those of teachers, and genes around a plan of `auto`.

    python examples/experiments/regal/oracles.py GRAPHS... [--task memory] [--teachers apart ordered]
        [--concentrations 4 16 256] [--evaluations 5000] [--seed 1000] [--bandwidth 10GB/s] [--latency 5us]

A line per graph, and the means over graphs with 95% intervals: the room (how far below BRKGA the plan of `auto` from
2,000 evaluations lies, or any other row, in percent), and the improvement over BRKGA at equal evaluations by each
teacher's actions, in 4 levels of placement, 16 of scheduling and transfers, as in the shipped weights; and by betas
around the keys of the plan, with a mean for every gene of its own: no network of REGAL's chooses these, it has one
level per op.
"""

import argparse
from pathlib import Path

import numpy as np
from figures_of_runs import with_error

LEVELS = {"placement": 4, "scheduling": 16, "transfers": 16}
PLACED = 16.0
PLANNED = "auto:evaluations=2000"


def around(problem, plan, concentration):
    """Return betas around the keys of a plan: affinities closely, all others as concentrated as is asked."""
    from schedopt.core.search.search import Search
    from schedopt.core.solvers.placements.brkga import GeneDistribution
    from schedopt.core.solvers.placements.chromosomes import Chromosomes

    with Chromosomes(Search(problem, max_evaluations=1)) as chromosomes:
        keys = chromosomes.encode(plan).astype(np.float64)
    ops, devices = problem.graph.num_ops, problem.devices
    least = 0.5 / (concentration + 1)
    mean = np.clip(keys, least, 1 - least)
    total = np.full(len(keys), float(concentration))
    affinity = keys[: ops * devices].reshape(ops, devices)
    mean[: ops * devices] = np.where(affinity == affinity.max(1, keepdims=True), 0.9, 0.1).ravel()
    total[: ops * devices] = PLACED
    return GeneDistribution(mean * total, (1 - mean) * total)


def improvements(graph, options):
    """Return name -> improvement in percent; the room is first."""
    from schedopt.core.search.search import Search
    from schedopt.core.solve.solve import solve
    from schedopt.core.solvers.placements import brkga
    from schedopt.policies.regal.actions import ActionParameters
    from schedopt.policies.regal.features import EVALUATIONS
    from schedopt.policies.regal.rewards import Setting, found_value, given_graphs, make_case
    from schedopt.policies.regal.teachers import TEACHERS

    levels = ActionParameters(**LEVELS)
    setting = Setting(options.task, 2, levels, EVALUATIONS, options.bandwidth, options.latency)
    case = make_case(given_graphs([graph]).maker(0), setting, options.seed, options.evaluations, "")
    problem, left = case.start.problem, options.evaluations - EVALUATIONS
    planned = solve(problem, PLANNED, seed=options.seed)
    values = {}
    for teacher in options.teachers:
        found = found_value(case.start, TEACHERS[teacher](case.searched, levels), levels, left)
        values[teacher] = min(found, case.searched.value)
    for concentration in options.concentrations:
        search = Search(problem, seed=options.seed, max_evaluations=left, lower_bound=case.start.bound)
        brkga.evolve(search, brkga.Parameters(), around(problem, planned.schedule, concentration))
        values[f"genes, {concentration:g}"] = min(search.best_value, case.searched.value)
    best = min(case.plain, planned.value, *values.values())
    return {name: 100 * (1 - case.ratio(value)) for name, value in {"room": best, **values}.items()}


def main():
    """Print the table of the command line."""
    from schedopt.core.base.units import parse_bandwidth, parse_microseconds
    from schedopt.core.files.costgraph import read_graph

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--task", choices=("memory", "runtime"), default="memory")
    parser.add_argument("--teachers", nargs="*", default=["apart", "planned", "ordered", "cut-and-order-64"])
    parser.add_argument("--concentrations", nargs="*", type=float, default=[4.0, 16.0, 256.0])
    parser.add_argument("--evaluations", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--most", type=int, default=1000, help="ops; larger graphs are left out")
    parser.add_argument("--bandwidth", type=parse_bandwidth, default=None)
    parser.add_argument("--latency", type=parse_microseconds, default=0.0)
    options = parser.parse_args()
    rows = []
    files = [file for given in options.graphs for file in (sorted(given.glob("*.pb*")) if given.is_dir() else [given])]
    for file in files:
        graph = read_graph(file)
        if graph.num_ops <= options.most:
            rows.append(improvements(graph, options))
            print(f"{graph.name}, {graph.num_ops} ops: " + ", ".join(f"{k} {v:+.1f}" for k, v in rows[-1].items()))
    print(f"{len(rows)} graphs")
    for name in rows[0] if rows else ():
        print(f"  {name}: {with_error([row[name] for row in rows])}")


if __name__ == "__main__":
    main()
