"""Evolution of a rule for the least peak: an expression over the ready ops, of which the largest value runs next.

usage: python examples/experiments/topoformer/evolved_rule.py [--rules 15000] [--ways backward forward] [--seed 0]
           [--real FOLDER] [--show RULE...]

Genetic programming on expression trees, as FunSearch does on code, for rules that fill an order in one pass: backward
from its last op, or forward. Of ten graphs six are layered (Topoformer, appendix A; 250 ops for training, else 500) and
four are REGAL's synthetic ones (50 to 200 ops, else 100 to 400), one of each model. A rule's cost is its peak over that
of `lpmf`: its mean over 100 graphs is minimised, the best rules are compared on 50 others, and the best of these is told
on 100 more and on the graphs of --real. --show tells given rules instead, for example "backward:(neg (div change (sub
used (mul 4 chain))))", which is `backward-ratio`. Bytes are over the mean step's; places and steps are from 0 to 1.
Ctrl-C ends the search early. The defaults take two minutes of a core.
"""

import argparse
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import schedopt
from numba import njit
from schedopt.core.base.arrays import places_in
from schedopt.core.kernels.orders.set_beam import (
    MOST_LOOKED,
    NO_LIMIT,
    backward_walk,
    extend_in_place,
    forward_walk,
    new_state,
)
from schedopt.core.kernels.orders.order_memory import memory_of_steps
from schedopt.core.report.differences import levels
from schedopt.core.search.search import Search
from schedopt.core.solvers.orders.approximate_dp import run_beam
from schedopt.core.solvers.orders.baselines import kahn_order, reverse_postorder
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.datasets.synthetic import MODELS, SyntheticParameters, synthetic_graph

SEED, GRAPHS = 515_151, {"training": 100, "choice": 50, "test": 100}
SCREEN, POPULATION, TOURNAMENT, MOST_NODES, PER_NODE, FINALISTS = 20, 150, 5, 30, 1e-4, 40
STATIC = ("index", "level", "ahead", "postorder", "breadth", "readers", "reads", "own", "workspace", "read")
DYNAMIC = (
    "need",
    "rise",
    "change",
    "used",
    "room",
    "resident",
    "step",
    "newness",
    "share",
    "opens",
    "chain",
    "recency",
)
NAMES = (*STATIC, *DYNAMIC)
OPERATORS = {"neg": 1, "log": 1, "add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "then": 2, "if": 3}
CODES = {name: 100 + at for at, name in enumerate(OPERATORS)}
CONSTANT, FIRST, NEG, LOG, IF = 99, len(STATIC), 100, 101, 109
CODES_OF_TWO = tuple(range(102, 109))


class Case(NamedTuple):
    """A graph as rules see it."""

    graph: Any
    walks: dict[str, Any]
    starts: dict[str, Any]  # the empty sets
    static: dict[str, Any]  # features per direction, shape `(STATIC, ops)`
    unit: float  # bytes
    lpmf: int  # bytes, without the persistent ones


def case_of(graph: Any) -> Case:
    """Return a graph with its features, levels and places the same way round in both directions."""
    b, ops = graph.buffers, graph.num_ops
    level = np.array(levels(graph), float)
    ahead = np.ones(ops)
    order = graph.input_order.tolist()
    for op in reversed(order):
        after = b.successors[b.successor_ptr[op] : b.successor_ptr[op + 1]]
        ahead[op] = 1 + (ahead[after].max() if len(after) else 0)
    unit = max(1.0, float((b.own + b.workspace).mean()))
    read = np.zeros(ops)
    np.add.at(read, b.users, np.repeat(b.size, np.diff(b.user_ptr)))
    places = (
        places_in(graph.input_order),
        places_in(reverse_postorder(graph)),
        places_in(kahn_order(graph, last_in_first_out=False)),
    )
    degrees = np.diff(b.successor_ptr), np.diff(b.predecessor_ptr)
    deep = level.max()
    amounts = b.own / unit, b.workspace / unit, read / unit
    forward = np.stack([places[0], level / deep, ahead / deep, places[1], places[2], *degrees, *amounts])
    backward = np.stack(
        [1 - places[0], ahead / deep, level / deep, 1 - places[1], 1 - places[2], *degrees[::-1], *amounts]
    )
    walks, static = (
        {"forward": forward_walk(b), "backward": backward_walk(b)},
        {"forward": forward, "backward": backward},
    )
    starts = {way: new_state(b, walk) for way, walk in walks.items()}
    return Case(graph, walks, starts, static, unit, greedy_peak(graph, walks["forward"]))


def greedy_peak(graph: Any, walk: Any) -> int:
    """Return the peak of the least peak first, along a walk."""
    state = new_state(graph.buffers, walk)
    extend_in_place(graph.buffers, walk, state, 2**62, 0, graph.num_ops)
    return int(state.totals[0])


@njit(cache=True)
def joint(code: int, one: float, two: float) -> float:
    """Return the value of an operator of two numbers."""
    if code == CODES_OF_TWO[0]:
        return one + two
    if code == CODES_OF_TWO[1]:
        return one - two
    if code == CODES_OF_TWO[2]:
        return one * two
    if code == CODES_OF_TWO[3]:
        return one / (abs(two) + 0.01)
    if code == CODES_OF_TWO[4]:
        return min(one, two)
    return max(one, two) if code == CODES_OF_TWO[5] else 1000 * one + two


@njit(cache=True)
def peak_of(
    b: Any, walk: Any, s: Any, f: Any, static: Any, unit: float, codes: Any, constants: Any, joined: Any
) -> int:
    """Let the ready op of the largest value of a postfix expression join, ties by the first; returns the peak."""
    peak, resident, count = s.totals[0], s.totals[1], s.totals[2]
    sign, ops, stack, since = (1 if walk.is_backward else -1), len(walk.step), np.zeros(40), np.zeros(len(walk.step))
    for step in range(ops):
        chosen, most = -1, 0.0
        for place in range(max(0, count - MOST_LOOKED), count):
            op, top = s.ready[place], -1
            need = resident + walk.step[op] + (s.used[op] if walk.is_backward else 0)
            f[:FIRST] = static[:, op]
            f[FIRST], f[FIRST + 1] = need / unit, max(0, need - peak) / unit
            f[FIRST + 2], f[FIRST + 3] = (walk.change[op] + sign * s.used[op]) / unit, s.used[op] / unit
            f[FIRST + 4], f[FIRST + 5] = (peak - resident) / unit, resident / unit
            f[FIRST + 6], f[FIRST + 7] = step / ops, since[op] / ops  # newness: when it became ready
            f[FIRST + 8 : FIRST + 12] = 0
            for use in range(b.used_ptr[op], b.used_ptr[op + 1]):  # share: bytes of inputs over readers outside
                f[FIRST + 8] += b.size[b.used[use]] / max(1, s.outside[b.used[use]]) / unit
            for after in range(walk.next_ptr[op], walk.next_ptr[op + 1]):
                follower = walk.next[after]
                if s.waiting[follower] == 1:  # opens: ops that it makes ready; chain: the least change of one
                    change = (walk.change[follower] + sign * s.used[follower]) / unit
                    f[FIRST + 9], f[FIRST + 10] = f[FIRST + 9] + 1, min(f[FIRST + 10], change)
            before = walk.waits_ptr[op + 1] - walk.waits_ptr[op]
            for at in range(walk.waits_ptr[op], walk.waits_ptr[op + 1]):  # recency: the mean step of those
                f[FIRST + 11] += joined[walk.waits[at]] / ops / before
            for at in range(len(codes)):
                code = codes[at]
                if code <= CONSTANT:
                    top += 1
                    stack[top] = constants[at] if code == CONSTANT else f[code]
                elif code == NEG:
                    stack[top] = -stack[top]
                elif code == LOG:
                    stack[top] = np.sign(stack[top]) * np.log1p(abs(stack[top]))
                elif code == IF:
                    top -= 2
                    stack[top] = stack[top + 1] if stack[top] > 0 else stack[top + 2]
                else:
                    top -= 1
                    stack[top] = min(1e12, max(-1e12, joint(code, stack[top], stack[top + 1])))
            is_first = chosen >= 0 and stack[0] == most and static[0, op] < static[0, s.ready[chosen]]
            if chosen < 0 or stack[0] > most or is_first:
                chosen, most = place, stack[0]
        op = s.ready[chosen]
        peak = max(peak, resident + walk.step[op] + (s.used[op] if walk.is_backward else 0))
        resident += walk.change[op] + sign * s.used[op]
        count -= 1
        s.ready[chosen] = s.ready[count]
        s.waiting[op], joined[op] = -1, step
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            is_first_user = s.outside[buffer] == b.user_ptr[buffer + 1] - b.user_ptr[buffer]
            s.outside[buffer] -= 1
            if b.is_final[buffer] or not (is_first_user if walk.is_backward else s.outside[buffer] == 1):
                continue
            for user in range(b.user_ptr[buffer], b.user_ptr[buffer + 1]):
                if s.waiting[b.users[user]] >= 0:
                    s.used[b.users[user]] -= sign * b.size[buffer]
        for at in range(walk.next_ptr[op], walk.next_ptr[op + 1]):
            follower = walk.next[at]
            s.waiting[follower] -= 1
            if s.waiting[follower] == 0:
                s.ready[count], since[follower] = follower, step + 1
                count += 1
    return peak


def price(way: str, rule: Any, cases: list[Case]) -> Any:
    """Return the peaks of a rule over those of `lpmf`, shape `(cases,)`."""
    postfix = []

    def walk(node: Any) -> None:
        if isinstance(node, tuple):
            for part in node[1:]:
                walk(part)
            postfix.append((CODES[node[0]], 0.0))
        else:
            postfix.append((NAMES.index(node), 0.0) if isinstance(node, str) else (CONSTANT, node))

    walk(rule)
    codes, constants = np.array([code for code, _ in postfix]), np.array([value for _, value in postfix])
    peaks = [
        peak_of(
            case.graph.buffers, case.walks[way], type(case.starts[way])(*(array.copy() for array in case.starts[way])),
            np.zeros(len(NAMES)),
            case.static[way], case.unit, codes, constants, np.zeros(case.graph.num_ops),
        )
        for case in cases
    ]  # fmt: skip
    held = [int(case.graph.persistent.sum()) for case in cases]
    return np.array([(p + h) / (c.lpmf + h) for p, h, c in zip(peaks, held, cases, strict=True)])


def size(rule: Any) -> int:
    """Return the number of nodes of a tree."""
    return 1 + sum(map(size, rule[1:])) if isinstance(rule, tuple) else 1


def grow(rng: Any, depth: int) -> Any:
    """Draw a tree."""
    if depth == 0 or rng.random() < 0.25:
        return round(float(rng.normal(0, 2)), 2) if rng.random() < 0.2 else NAMES[rng.integers(len(NAMES))]
    name = list(OPERATORS)[rng.integers(len(OPERATORS))]
    return (name, *(grow(rng, depth - 1) for _ in range(OPERATORS[name])))


def parts(rule: Any, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Any]]:
    """Return all subtrees and where they are."""
    below = (
        [part for at in range(1, len(rule)) for part in parts(rule[at], (*path, at))] if isinstance(rule, tuple) else []
    )
    return [(path, rule), *below]


def put(rule: Any, path: tuple[int, ...], part: Any) -> Any:
    """Return a tree with another subtree somewhere."""
    return (*rule[: path[0]], put(rule[path[0]], path[1:], part), *rule[path[0] + 1 :]) if path else part


def child_of(rng: Any, one: Any, other: Any) -> Any:
    """Return a tree with a subtree of another tree, a new one, one of its own, a changed constant, or a longer one."""
    where = parts(one)
    path, old = where[rng.integers(len(where))]
    kind = rng.random()
    if kind < 0.3:
        of_other = parts(other)
        return put(one, path, of_other[rng.integers(len(of_other))][1])
    if kind < 0.5:
        return put(one, path, grow(rng, int(rng.integers(0, 3))))
    if kind < 0.6:
        below = parts(old)
        return put(one, path, below[rng.integers(len(below))][1])
    if kind < 0.75:
        constants = [(path, part) for path, part in where if isinstance(part, float)]
        if constants:
            path, value = constants[rng.integers(len(constants))]
            return put(one, path, round(value * float(np.exp(rng.normal(0, 0.5))) + float(rng.normal(0, 0.1)), 3))
    scaled = ("mul", round(float(rng.normal(0, 2)), 2), NAMES[rng.integers(len(NAMES))])
    return put(one, path, ("add" if rng.random() < 0.7 else "then", old, scaled))


STARTS = ("(then (neg need) (neg change))", "(then (neg rise) (neg change))", "(sub (neg rise) change)", "newness",
          "(sub 0.0 postorder)", "(sub share own)", "(sub used own)", "(then (neg change) newness)")  # fmt: skip


def read(text: str) -> Any:
    """Return the tree of a rule as it is printed."""
    stack: list[list[Any]] = [[]]
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            stack.append([])
        elif word == ")":
            stack[-2].append(tuple(stack.pop()))
        else:
            stack[-1].append(word if word in NAMES or word in OPERATORS else float(word))
    return stack[0][0]


def show(rule: Any) -> str:
    """Return a rule as text."""
    return f"({' '.join(map(show, rule))})" if isinstance(rule, tuple) else str(rule)


def evolve(way: str, cases: list[Case], rules: int, rng: Any) -> list[tuple[float, Any]]:
    """Return the last population, the best rule first."""
    known: set[Any] = set()
    population: list[tuple[float, Any]] = []
    screened: list[float] = []
    with suppress(KeyboardInterrupt):
        for number in range(rules):
            if number < len(STARTS):
                rule = read(STARTS[number])
            elif number < POPULATION:
                rule = grow(rng, 4)
            else:
                drawn = [
                    min(rng.integers(len(population), size=TOURNAMENT), key=lambda at: population[at][0]) for _ in "12"
                ]
                rule = child_of(rng, *(population[at][1] for at in drawn))
            if rule in known or size(rule) > MOST_NODES:
                continue
            known.add(rule)
            first = price(way, rule, cases[:SCREEN])
            if number >= POPULATION and first.mean() > np.quantile(screened, 0.3):
                continue
            screened = [*screened[-300:], first.mean()]
            ratios = np.append(first, price(way, rule, cases[SCREEN:]))
            population.append((ratios.mean() + PER_NODE * size(rule), rule))
            if len(population) > POPULATION:
                population.pop(max(rng.integers(len(population), size=TOURNAMENT), key=lambda at: population[at][0]))
            if number % 1000 == 0:
                best = min(population, key=lambda pair: pair[0])
                print(f"{way} {number} {best[0]:.4f} {show(best[1])}", flush=True)
    return sorted(population, key=lambda pair: pair[0])


def draw(part: str, number: int) -> Any:
    """Draw a graph of a part."""
    rng = np.random.default_rng([SEED, list(GRAPHS).index(part), number])
    scale = 1 if part == "training" else 2
    if number % 10 < 6:
        return layered_graph(LayeredParameters(250 * scale), rng, "layered")
    return synthetic_graph(SyntheticParameters(50 * scale, 200 * scale), MODELS[number % 10 - 6], rng, "synthetic")


def compared(cases: list[Case], rules: dict[str, tuple[str, Any]], seconds: float) -> dict[str, Any]:
    """Return the peaks of rules and methods over those of `lpmf`, shape `(cases,)` each; `auto` has some seconds."""
    orders: dict[str, Callable[[Any], Any]] = {
        "input": lambda graph: graph.input_order,
        "dfs-postorder": reverse_postorder,
        "dfs": lambda graph: kahn_order(graph, last_in_first_out=True),
        "beam of 10, backward": lambda graph: run_beam(
            Search(schedopt.Problem(graph)), graph.buffers, 10, NO_LIMIT, is_backward=True
        ).chosen[::-1],
    }
    if seconds:
        solved = partial(schedopt.solve, method="auto", time_limit=seconds, seed=0)
        orders[f"auto, {seconds:g} s"] = lambda graph: solved(schedopt.Problem(graph)).schedule.op_order()
    rows = {name: price(way, rule, cases) for name, (way, rule) in rules.items()}
    for name, order_of in orders.items():
        peaks = [memory_of_steps(c.graph.buffers, order_of(c.graph)).max(initial=0) for c in cases]
        held = [int(c.graph.persistent.sum()) for c in cases]
        rows[name] = np.array([(p + h) / (c.lpmf + h) for p, h, c in zip(peaks, held, cases, strict=True)])
    return rows


def tell(title: str, rows: dict[str, Any], shown: Any) -> None:
    """Print how much lower than those of `lpmf` the peaks of some graphs are, with 95% intervals."""
    print(f"{title}: {shown.sum()} graphs, the peak below that of lpmf", flush=True)
    for name, ratios in rows.items():
        gains = 100 * (1 - ratios[shown])
        spread = 1.96 * gains.std(ddof=1) / len(gains) ** 0.5
        print(
            f"  {gains.mean():+6.2f} ± {spread:.2f}%, {(gains > 1e-9).sum()} better, {(gains < -1e-9).sum()} worse: {name}"
        )


def main() -> None:
    """Search, or take the rule given, and tell it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--ways", nargs="+", default=("backward",))
    parser.add_argument("--show", nargs="*", default=())
    given = parser.parse_args()
    cases = {part: [case_of(draw(part, number)) for number in range(count)] for part, count in GRAPHS.items()}
    rules = {f"lpmf, {way}": (way, read(STARTS[1])) for way in ("forward", "backward")}
    for text in given.show:
        way, _, rule = text.partition(":")
        rules[text] = way, read(rule)
    if not given.show:
        best: dict[str, tuple[float, Any]] = {}
        for number, way in enumerate(given.ways):
            for _, rule in evolve(way, cases["training"], given.rules, np.random.default_rng([given.seed, number]))[
                :FINALISTS
            ]:
                cost = price(way, rule, cases["choice"]).mean()
                if way not in best or cost < best[way][0]:
                    best[way] = cost, rule
            print(f"{way}: {show(best[way][1])}, {100 * (1 - best[way][0]):.2f}% on the choice", flush=True)
        rules |= {f"evolved, {way}": (way, rule) for way, (_, rule) in best.items()}
    names, rows = np.array([case.graph.name for case in cases["test"]]), compared(cases["test"], rules, 1.0)
    for title in ("test", "layered", "synthetic"):
        tell(title, rows, (names == title) | (title == "test"))
    if given.real:
        real = [case_of(schedopt.read_graph(file)) for file in sorted(given.real.rglob("*.pb.gz"))]
        tell("real", compared(real, rules, 0), np.full(len(real), True))


if __name__ == "__main__":
    main()
