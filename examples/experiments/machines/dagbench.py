"""DAGBench's workflows on their own networks: `heft` and `auto` against SAGA's schedulers and CP-SAT.

Usage: python examples/experiments/machines/dagbench.py FOLDER [--time-limit 10] [--seed 0]

FOLDER has `graphs/*.json` of DAGBench (ANRGUSC/dagbench, Apache-2.0: tasks with costs, dependencies with sizes, devices
and links with speeds), `best.json` with what others reach on each, and `checker.py`, which replays a schedule by code
of its own. Transfers run beside work, links are not contended, and nothing has memory. Each dependency is an output of
its own. Costs and sizes are taken a million times, as microseconds and bytes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import schedopt

SCALE = 1e6
CLOSE = 1e-6


def converted(document: dict[str, Any], name: str) -> tuple[schedopt.CostGraph, schedopt.Machine]:
    """Return the graph and the machine of a workflow."""
    tasks, edges = document["task_graph"]["tasks"], document["task_graph"]["dependencies"]
    place = {task["name"]: at for at, task in enumerate(tasks)}
    inputs: list[list[tuple[int, int]]] = [[] for _ in tasks]
    outputs: list[list[int]] = [[] for _ in tasks]
    for edge in edges:
        source = place[edge["source"]]
        inputs[place[edge["target"]]].append((source, len(outputs[source])))
        outputs[source].append(round(edge["size"] * SCALE))
    builder = schedopt.GraphBuilder(name)
    for at, task in enumerate(tasks):
        builder.add_op(task["name"], inputs=inputs[at], outputs=outputs[at], runtime=task["cost"] * SCALE)
    nodes, links = document["network"]["nodes"], document["network"]["edges"]
    number = {node["name"]: at for at, node in enumerate(nodes)}
    bandwidth = np.zeros((len(nodes), len(nodes)))
    for link in links:
        one, two = number[link["source"]], number[link["target"]]
        bandwidth[one, two] = bandwidth[two, one] = link["speed"] * SCALE
    np.fill_diagonal(bandwidth, np.inf)
    devices = tuple(schedopt.Device(node["name"], speed=node["speed"]) for node in nodes)
    machine = schedopt.Machine(devices, bandwidth, transfers="beside", contention=False)
    return builder.build(), machine


def rows_of(result: schedopt.Result) -> list[tuple[str, str, float, float]]:
    """Return task, device, start and end of each step, as the checker takes them."""
    names = [device.name for device in result.problem.machine.devices]
    steps = result.document()["steps"]
    return [
        (step["op"], names[step["device"]], step["start_us"] / SCALE, step["end_us"] / SCALE)
        for step in steps
        if "op" in step
    ]


def checker_of(folder: Path) -> Any:
    """Load the folder's own checker."""
    spec = importlib.util.spec_from_file_location("dagbench_checker", folder / "checker.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(checker: Any, path: Path, result: schedopt.Result) -> float:
    """Return the makespan of a result after the checker has replayed it."""
    wrong, makespan, _, _ = checker.check(checker.load(path), rows_of(result))
    wrong = [text for text in wrong if not text.startswith("data")] if is_local_only(checker, path, result) else wrong
    if wrong:
        raise SystemExit(f"{path}: {wrong[0]}")
    return float(makespan)


def is_local_only(checker: Any, path: Path, result: schedopt.Result) -> bool:
    """Whether the schedule keeps every rule but for links of a device to itself, which are free here."""
    instance = checker.load(path)
    speed, link, cost, deps = instance
    free = {pair: 1e300 if pair[0] == pair[1] else value for pair, value in link.items()}
    wrong, *_ = checker.check((speed, {**free, **{(d, d): 1e300 for d in speed}}, cost, deps), rows_of(result))
    return not wrong


def main() -> None:
    """Solve each workflow and print how it compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    best = json.loads((arguments.folder / "best.json").read_text())
    checker = checker_of(arguments.folder)
    counts = dict.fromkeys(("above the peers", "below the peers", "possible below", "optima", "missed optima"), 0)
    counts["proven here"] = counts["heft above"] = counts["heft below"] = 0
    heads = "".join(f"{head:>12}" for head in ("their heft", "heft", "best peer", "known", "auto"))
    print(f"{'workflow':42}{heads}{'proven':>8}  status")
    for name, known in best.items():
        path = arguments.folder / "graphs" / f"{name}.json"
        graph, machine = converted(json.loads(path.read_text()), name)
        results = {
            method: schedopt.solve(graph, method, task="runtime", machine=machine, **budget)
            for method, budget in (("heft", {}), ("auto", {"time_limit": arguments.time_limit, "seed": arguments.seed}))
        }
        found = {method: checked(checker, path, result) for method, result in results.items()}
        is_optimal = results["auto"].status == "optimal"
        peers, upper, auto = known["best_any_free_local"], known["known_upper_free_local"], found["auto"]
        counts["above the peers"] += auto > peers * (1 + CLOSE)
        counts["below the peers"] += auto < peers * (1 - CLOSE)
        counts["possible below"] += known["peer_best_can_be_beaten"]
        counts["optima"] += known["proven"]
        counts["proven here"] += is_optimal
        counts["missed optima"] += known["proven"] and auto > upper * (1 + CLOSE)
        counts["heft above"] += found["heft"] > known["heft"] * (1 + CLOSE)
        counts["heft below"] += found["heft"] < known["heft"] * (1 - CLOSE)
        status = "above" if auto > peers * (1 + CLOSE) else "below" if auto < peers * (1 - CLOSE) else ""
        figures = (known["heft"], found["heft"], peers, upper, auto)
        cells = "".join(f"{value:12.5f}" for value in figures)
        print(f"{name:42}{cells}{'yes' if is_optimal else '':>8}  {status}", flush=True)
    print("; ".join(f"{what}: {count}" for what, count in counts.items()))


if __name__ == "__main__":
    main()
