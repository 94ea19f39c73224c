"""Oracles of one pass: what it could give if its choices came from a plan of `auto`, and from trying all patiences.

    python examples/experiments/direct/oracles.py GRAPHS... [--task runtime] [--devices 2] [--bandwidth 10GB/s]
        [--latency 5us] [--seed 1000]

For the makespan a line per row says how much better it is than all ops on one device, in percent, for the peak than the
rule; means over graphs with 95% intervals. `auto` has 2,000 evaluations.
"with one device" takes the better of the two, graph by graph.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import schedopt
from schedopt.core.base.units import parse_bandwidth, parse_microseconds
from schedopt.core.model.simulator import simulate
from schedopt.core.solvers.placements.chromosomes import keys_along
from schedopt.policies.direct.keys import decode, order_of, rule_keys

PATIENCES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)


def main() -> None:
    """Print the rows of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--task", choices=("runtime", "memory"), default="runtime")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--bandwidth", type=parse_bandwidth)
    parser.add_argument("--latency", type=parse_microseconds, default=0.0)
    parser.add_argument("--seed", type=int, default=1000)
    given = parser.parse_args()
    files = [file for path in given.graphs for file in (sorted(path.glob("*.pb*")) if path.is_dir() else [path])]
    rows: dict[str, list[float]] = {}
    for file in files:
        links = {"bandwidth": given.bandwidth, "latency": given.latency} if given.task == "runtime" else {}
        problem = schedopt.Problem(schedopt.read_graph(file), given.task, devices=given.devices, **links)
        plan = schedopt.solve(problem, method="auto", evaluations=2000, seed=given.seed)
        of_task = _makespans if given.task == "runtime" else _peaks
        for name, value in of_task(problem, plan).items():
            rows.setdefault(name, []).append(value)
    print(f"{given.task}, {given.devices} devices, {len(files)} graphs", flush=True)
    for name, values in rows.items():
        error = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
        print(f"  {name}: {np.mean(values):+.2f} ± {error:.2f}%", flush=True)


def _makespans(problem: schedopt.Problem, plan: schedopt.Result) -> dict[str, float]:
    graph = problem.graph
    one, rule, order = float(graph.runtime.sum()), rule_keys(problem), plan.schedule.op_order()
    placement = plan.schedule.placement(graph)
    rules, plans = (_at_all_patiences(problem, keys) for keys in (rule, keys_along(order)))
    values = {
        "the rule": _value_of(problem, rule),
        "the rule, the best patience": rules.min(),
        "the plan's order as keys, the best patience": plans.min(),
    }
    values |= {f"{name}, with one device": min(one, value) for name, value in values.items()}
    values["the plan's placement, ops by bottom level"] = _run_along(problem, order_of(graph, rule), placement)
    values["the plan's placement, ops in its order"] = _run_along(problem, order, placement)
    values["auto"] = plan.value
    return {name: 100 * (1 - value / one) for name, value in values.items()}


def _at_all_patiences(problem: schedopt.Problem, keys: np.ndarray) -> np.ndarray:
    rows = np.repeat(keys[None], len(PATIENCES), axis=0).astype(np.float32)
    rows[:, -1] = PATIENCES
    return np.array([_value_of(problem, row) for row in rows])


def _value_of(problem: schedopt.Problem, keys: np.ndarray) -> float:
    search = schedopt.Search(problem)
    decode(search, keys[None])
    return float(search.best_value)


def _run_along(problem: schedopt.Problem, order: np.ndarray, placement: np.ndarray) -> float:
    """Return the makespan if ops run in this order where they are placed, sent what they lack just before."""
    graph, steps, held = problem.graph, [], set()
    pointers, tensors = graph.inputs
    for op in order.tolist():
        device = int(placement[op])
        for tensor in tensors[pointers[op] : pointers[op + 1]].tolist():
            source = int(placement[graph.tensor_producer[tensor]])
            if source != device and (tensor, device) not in held:
                held.add((tensor, device))
                steps.append((~tensor, source, device))
        steps.append((op, device, device))
    schedule = schedopt.Schedule.from_steps(*(np.array(column) for column in zip(*steps, strict=True)))
    return float(simulate(problem, schedule).runtime)


def _peaks(problem: schedopt.Problem, plan: schedopt.Result) -> dict[str, float]:
    rule, along = (_value_of(problem, keys) for keys in (rule_keys(problem), keys_along(plan.schedule.op_order())))
    values = {"the plan's order": along, "auto": plan.value}
    return {name: 100 * (1 - value / max(rule, 1.0)) for name, value in values.items()}


if __name__ == "__main__":
    main()
