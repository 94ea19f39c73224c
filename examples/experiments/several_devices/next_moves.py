"""Which ops to move next where search is weak: drawn by a network that saw what improved in long runs, or by rules.

usage: python examples/experiments/several_devices/next_moves.py oracle|learn|compare FOLDER KIND [--graphs N]
       [--skip N] [--ops 1000] [--moves N...] [--long N] [--seconds 1 2 4 10]
       [--evaluations N...] [--arms uniform auto network...] [--seeds N] [--network FILE.npz] [--resume FILE.jsonl]
    KIND is a regime of `weak_search.py`, with transfers that take time: `layered` on 2 devices, others on 4.
    FOLDER has its graphs as there: FOLDER/KIND-1000. Those of `compare` must not be those of `learn`.
The first two begin with the plan of `auto` after 1 s, and draw moves uniformly unless it is said otherwise.

`oracle`: a run of --long moves goes on from it. How much --moves from the same plan gain if they are drawn uniformly,
from the ops that are on another device after the long run, from these and the devices they have there, by a rule, or by
the network.
`learn`: the long run is stopped at 16 plans, and of each 600 moves are priced. A network of one hidden layer learns
which improve it, from what `op_choice.py` knows of an op and a device; the last sixth of the graphs is not trained on,
and says when to stop. How often it and the rules draw moves that improve is printed; it is written to --network, by
default FOLDER/next-moves-KIND.npz.
`compare`: `auto` with the moves of its annealing of sequences drawn by each arm, in seconds of processor time, those of
the network included, or in equal evaluations: then all arms begin with the same plans. How much lower the makespan is
than in the first arm, graph by graph, and how far above the bound; means with 95% confidence intervals. An arm is
`uniform`, `auto` (which has its rule built in), `network`, or a rule.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import schedopt
from op_choice import NAMES, RULES, Choice, Drawn, Network, Uniform, describe, new_scratch
from recorded_runs import RecordedRuns, count_processor_time
from schedopt.core.base.units import parse_bandwidth, parse_microseconds
from schedopt.core.problem.problem import Problem
from schedopt.core.search.search import Search
from schedopt.core.solvers.placements import annealing, makespan_annealing
from schedopt.core.solvers.placements.cooling import LEAST_CALLS, OPS_PER_CALL
from weak_search import Cell, graph_of, mean_of

DEVICES = {"layered": 2, "synthetic": 4, "real": 4}
HOT, COLD = annealing.Parameters.hot, annealing.Parameters.cold
PLANS, PRICED = 16, 600
HIDDEN, EPOCHS, BATCH, RATE, DECAY = 32, 30, 1024, 3e-3, 1e-3
KERNEL, WEIGHTS = makespan_annealing.anneal_sequence, makespan_annealing.MoveDraws
ARMS = ("uniform", "auto", "network", *RULES)


def main() -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("oracle", "learn", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=tuple(DEVICES))
    parser.add_argument("--graphs", type=int, default=12)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--ops", type=int, default=1000)
    parser.add_argument("--moves", type=int, nargs="+", default=[5_000, 20_000])
    parser.add_argument("--long", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 2.0, 4.0, 10.0])
    parser.add_argument("--evaluations", type=int, nargs="+", default=[])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--network", type=Path)
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    given.network = given.network or given.folder / f"next-moves-{given.kind}.npz"
    count_processor_time()
    {"oracle": _oracle, "learn": _learn, "compare": _compare}[given.part](given)


def _problems(given: argparse.Namespace) -> list[tuple[str, Problem]]:
    """Return the file names and problems of the graphs that are asked for."""
    cell = Cell("runtime", given.kind, given.ops, "paid", "none", DEVICES[given.kind], place=0)
    settings = cell.settings()
    links = {"bandwidth": parse_bandwidth(settings["bandwidth"]), "latency": parse_microseconds(settings["latency"])}
    return [
        (file.name, Problem(graph_of(file, given.kind), "runtime", cell.devices, **links))
        for file in cell.files(given.folder, given.skip, given.graphs)
    ]


def _auto(problem: Problem, seed: int = 0, **budget: Any) -> Any:
    """Return what `auto` finds within a `time_limit` in seconds, or so many `evaluations`."""
    place = {"devices": problem.devices, "bandwidth": problem.bandwidth, "latency": problem.latency}
    return schedopt.solve(problem.graph, "auto", task="runtime", **place, **budget, seed=seed)


@contextmanager
def _drawn(choice: Choice | None, has_weights: bool = False, kernel: Any = KERNEL) -> Iterator[None]:
    """Let the annealing draw moves by a choice, by its own weights, or uniformly."""
    makespan_annealing.anneal_sequence = Drawn(choice) if choice else kernel
    makespan_annealing.MoveDraws = WEIGHTS if has_weights else Uniform
    try:
        yield
    finally:
        makespan_annealing.anneal_sequence, makespan_annealing.MoveDraws = KERNEL, WEIGHTS


def _start(problem: Problem) -> Any:
    """Return what `auto` finds in a second with moves drawn uniformly."""
    with _drawn(None):
        return _auto(problem, time_limit=1.0)


def _walk(problem: Problem, start: Any, moves: int, choice: Choice | None = None, kernel: Any = KERNEL) -> Search:
    """Anneal the sequence of a result for so many moves; return the search, which holds the best plan."""
    search = Search(problem, max_evaluations=moves, lower_bound=start.lower_bound)
    search.offer(start.schedule)
    with _drawn(choice, kernel=kernel):
        makespan_annealing.MakespanAnnealing(search).over_sequences(HOT, COLD)
    return search


def _towards(goal: Any, knows_device: bool, rows: Any, placement: Any) -> Any:
    """Choose the ops whose device is not that of a goal, and this device if it is known."""
    chosen = np.zeros(rows.shape[:2])
    apart = np.flatnonzero(placement != goal)
    if knows_device:
        chosen[apart, goal[apart]] = 1.0
    else:
        chosen[apart] = 1.0
    return chosen


def _oracle(given: argparse.Namespace) -> None:
    """Print what each way to draw moves gains from the same plan."""
    gains: dict[tuple[int, str], list[float]] = {}
    times: dict[tuple[int, str], float] = {}
    long, apart = [], []
    for _, problem in _problems(given):
        start = _start(problem)
        best = _walk(problem, start, given.long)
        assert best.best is not None
        goal = best.best.placement(problem.graph)
        long.append(1 - best.best_value / start.value)
        apart.append(float((goal != start.schedule.placement(problem.graph)).mean()))
        ways: dict[str, Choice | None] = {
            "uniform": None,
            "ops apart": partial(_towards, goal, False),
            "and their devices": partial(_towards, goal, True),
            **RULES,
            "network": Network(given.network),
        }
        for moves in given.moves:
            for name, choice in ways.items():
                began = time.monotonic()
                value = _walk(problem, start, moves, choice).best_value
                times[moves, name] = times.get((moves, name), 0.0) + time.monotonic() - began
                gains.setdefault((moves, name), []).append(1 - value / start.value)
    print(f"{given.kind}: {given.long} moves gain {mean_of(np.array(long))}; {np.mean(apart):.1%} of the ops are then")
    print("on another device")
    for (moves, name), found in gains.items():
        more = np.array(found) - np.array(gains[moves, "uniform"])
        print(f"  {moves} moves, {name:18}: {mean_of(np.array(found))}, {mean_of(more)} more than uniformly, ", end="")
        print(f"{times[moves, name] / len(found):.2f} s")


class _Priced:
    """The kernel of the annealing, which prices some moves of its plan at every so many calls."""

    def __init__(self, every: int, seed: int) -> None:
        self.every, self.rng, self.calls = every, np.random.default_rng(seed), 0
        self.rows: list[Any] = []
        self.gains: list[float] = []

    def __call__(self, g: Any, s: Any, given: Any, order: Any, position: Any, aim: Any, links: Any, walk: Any) -> float:
        if self.calls % self.every == self.every // 2:
            self._price(g, s, given, order, position, aim, links)
        self.calls += 1
        return KERNEL(g, s, given, order, position, aim, links, walk)

    def _price(self, g: Any, s: Any, given: Any, order: Any, position: Any, aim: Any, links: Any) -> None:
        ops, devices = len(order), links.devices
        scratch = new_scratch(ops, devices)
        energy = aim.scale * describe(g, given[1].waits, order, position, s.placement, links, scratch)
        present = order.copy(), position.copy(), s.placement.copy()
        spare, best = (order.copy(), s.placement.copy()), np.array([0.0, -np.inf])
        for draws in self.rng.random((PRICED, 1, 5)):
            op = int(draws[0, 0] * ops)
            device = present[2][op]
            if draws[0, 1] < 0.5:
                device = (device + 1 + int(draws[0, 2] * (devices - 1))) % devices
            walk = makespan_annealing.Walk(0.0, energy, draws, best, *spare)
            after = KERNEL(g, s, given, order, position, aim, links, walk)
            order[:], position[:], s.placement[:] = present
            self.rows.append(scratch.rows[op * devices + device].copy())
            self.gains.append(1 - after / energy)


def _learn(given: argparse.Namespace) -> None:
    """Price moves of plans of long runs, learn which improve, and print how often each way would draw such."""
    rows, improves, graphs = [], [], []
    for number, (name, problem) in enumerate(_problems(given)):
        start = _start(problem)
        batch = max(
            1,
            min(
                given.long // LEAST_CALLS,
                OPS_PER_CALL // max(1, problem.graph.num_ops // makespan_annealing.PRICED_AGAIN),
            ),
        )
        priced = _Priced(max(1, given.long // batch // PLANS), number)
        _walk(problem, start, given.long, kernel=priced)
        rows.append(np.array(priced.rows))
        improves.append(np.array(priced.gains) > 1e-9)
        graphs.append(np.full(len(priced.gains), number))
        print(f"  {name}: {improves[-1].mean():.2%} of {len(graphs[-1])} moves improve the plan", flush=True)
    x, y, graph = np.concatenate(rows), np.concatenate(improves), np.concatenate(graphs)
    held = graph >= len(graphs) - max(1, len(graphs) // 6)
    _train(x, y, held, given.network)
    _print_lift(x[held], y[held], Network(given.network))


def _train(x: Any, y: Any, held: Any, file: Path) -> None:
    """Train a network, keep it as it is where what is held back is told best, and write it."""
    import torch

    torch.manual_seed(0)
    mean, scale = x[~held].mean(0), 1 / np.maximum(x[~held].std(0), 1e-3)
    inputs, targets = torch.tensor((x - mean) * scale, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    network = torch.nn.Sequential(torch.nn.Linear(len(NAMES), HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1))
    optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    trained, held_back = torch.tensor(np.flatnonzero(~held)), torch.tensor(np.flatnonzero(held))
    least = np.inf
    for _ in range(EPOCHS):
        for batch in trained[torch.randperm(len(trained))].split(BATCH):
            optimiser.zero_grad()
            loss_of(network(inputs[batch])[:, 0], targets[batch]).backward()
            optimiser.step()
        with torch.no_grad():
            loss = loss_of(network(inputs[held_back])[:, 0], targets[held_back]).item()
        if loss < least:
            least = loss
            first, second = (layer.weight.detach().numpy().T.copy() for layer in (network[0], network[2]))
            biases = [layer.bias.detach().numpy().copy() for layer in (network[0], network[2])]
            np.savez(file, mean=mean, scale=scale, w1=first, b1=biases[0], w2=second, b2=biases[1])


def _print_lift(rows: Any, improves: Any, network: Network) -> None:
    """Print how many moves improve, of plans that were not trained on, if each way draws them."""
    probability = network(rows[:, None], np.zeros(len(rows), np.int32))[:, 0]
    order = probability.argsort().argsort()
    right = int(improves.sum())
    area = (order[improves].mean() - (right - 1) / 2) / max(1, len(order) - right)
    print(f"held back: {improves.mean():.2%} of the moves improve; area under the network's curve {area:.3f}")
    for name, choice in {"network": network, **RULES}.items():
        weights = choice(rows[:, None], np.zeros(len(rows), np.int32))[:, 0]
        share = float((weights * improves).sum() / weights.sum())
        print(f"  {name:10}: {share:.2%}, {share / improves.mean():.1f} times as many")


def _within(problem: Problem, budget: dict[str, Any], arm: str, network: Path, seed: int) -> list[float]:
    """Return what `auto` finds, the bound, and the seconds used."""
    with _drawn(Network(network) if arm == "network" else RULES.get(arm), arm == "auto"):
        result = _auto(problem, seed, **budget)
    return [result.value, result.lower_bound, round(result.seconds, 3)]


def _compare(given: argparse.Namespace) -> None:
    """Print how much lower `auto`'s makespan is in each arm than in the first, for each time."""
    runs, problems, arms = RecordedRuns(given.resume), _problems(given), given.arms
    for arm in arms:
        _within(
            problems[0][1], {"time_limit": 0.1}, arm, given.network, 0
        )  # so that no run is charged for what is compiled
    budgets = [{"evaluations": count} for count in given.evaluations]
    for budget in budgets or [{"time_limit": seconds} for seconds in given.seconds]:
        values, bounds, used = np.empty((3, len(problems), len(arms), given.seeds))
        for row, (name, problem) in enumerate(problems):
            for seed in range(given.seeds):
                for at, arm in enumerate(arms):
                    key = [f"{given.kind}-{given.ops}/{name}", problem.devices, arm, budget, seed]
                    run = partial(_within, problem, budget, arm, given.network, seed)
                    values[row, at, seed], bounds[row, at, seed], used[row, at, seed] = runs.found(key, run)
        bound = bounds.max((1, 2))
        said = ", ".join(f"{name} {value:g}" for name, value in budget.items())
        for at, arm in enumerate(arms):
            lower = (1 - values[:, at] / values[:, 0]).mean(1)
            print(f"{given.kind}, {said}, {arm:9}: {mean_of(lower)} lower, ", end="")
            print(
                f"{mean_of(values[:, at].mean(1) / bound - 1)} above the bound, {used[:, at].mean():.2f} s used",
                flush=True,
            )


if __name__ == "__main__":
    main()
