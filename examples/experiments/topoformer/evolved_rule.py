"""Evolution of a rule for the least peak: an expression over the ready ops, of which the largest value runs next.

usage: python examples/experiments/topoformer/evolved_rule.py [--rules 15000] [--seed 0] [--real FOLDER]
           [--show RULE...]

Genetic programming on expression trees, as FunSearch does on code, for rules that fill an order in one pass from its
last op to its first. Of ten graphs six are layered (Topoformer, appendix A; 250 ops for training, else 500) and four
are REGAL's synthetic ones (50 to 200 ops, else 100 to 400), one of each model. A rule's cost is its peak over that of
`lpmf`: its mean over 100 graphs is minimised, the best rules are compared on 50 others, and the best of these is told
on 100 more and on the graphs of --real, next to `lpmf` from the last op on and to `backward-ratio`. --show tells given
rules instead. Bytes are over the mean step's; places and steps are from 0 to 1. Ctrl-C ends the search early.
"""

import argparse
import ast
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import schedopt
from numba import njit
from schedopt.core.base.arrays import places_in
from schedopt.core.kernels.orders.order_memory import memory_of_steps
from schedopt.core.kernels.orders.set_beam import MOST_LOOKED, NO_LIMIT, State, backward_walk, new_state
from schedopt.core.report.differences import levels
from schedopt.core.search.search import Search
from schedopt.core.solvers.orders.approximate_dp import run_beam
from schedopt.core.solvers.orders.baselines import greedy_order, kahn_order, reverse_postorder
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
    """A graph as rules see it: seen from its end, as levels and places are, too."""

    graph: Any
    walk: Any
    start: State  # the empty set
    static: Any  # features, shape `(STATIC, ops)`
    unit: float  # bytes
    lpmf: int  # bytes


def case_of(graph: Any) -> Case:
    """Return a graph with its features."""
    b, walk = graph.buffers, backward_walk(graph.buffers)
    unit = max(1.0, float((b.own + b.workspace).mean()))
    ahead, level = np.ones(graph.num_ops), np.array(levels(graph), float)
    for op in reversed(graph.input_order.tolist()):
        ahead[op] += ahead[b.successors[b.successor_ptr[op] : b.successor_ptr[op + 1]]].max(initial=0)
    read = np.zeros(graph.num_ops)
    np.add.at(read, b.users, np.repeat(b.size, np.diff(b.user_ptr)))
    orders = graph.input_order, reverse_postorder(graph), kahn_order(graph, last_in_first_out=False)
    places, deep = [1 - places_in(order) for order in orders], level.max()
    degrees = np.diff(b.predecessor_ptr), np.diff(b.successor_ptr)
    amounts = b.own / unit, b.workspace / unit, read / unit
    static = np.stack([places[0], ahead / deep, level / deep, *places[1:], *degrees, *amounts])
    return Case(graph, walk, new_state(b, walk), static, unit, peak_along(graph, greedy_order(b)))


def peak_along(graph: Any, order: Any) -> int:
    """Return the peak of an order, bytes."""
    return int(memory_of_steps(graph.buffers, order).max() + graph.persistent.sum())


@njit
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


@njit
def peak_of(
    b: Any, walk: Any, s: Any, f: Any, static: Any, unit: float, codes: Any, constants: Any, joined: Any
) -> int:
    """Let the ready op of the largest value of a postfix expression join, ties by the first; returns the peak."""
    peak, resident, count = s.totals[0], s.totals[1], s.totals[2]
    ops, stack, since = len(walk.step), np.zeros(40), np.zeros(len(walk.step))
    for step in range(ops):
        chosen, most = -1, 0.0
        for place in range(max(0, count - MOST_LOOKED), count):
            op, top = s.ready[place], -1
            need = resident + walk.step[op] + s.used[op]
            f[:FIRST] = static[:, op]
            f[FIRST], f[FIRST + 1] = need / unit, max(0, need - peak) / unit
            f[FIRST + 2], f[FIRST + 3] = (walk.change[op] + s.used[op]) / unit, s.used[op] / unit
            f[FIRST + 4], f[FIRST + 5] = (peak - resident) / unit, resident / unit
            f[FIRST + 6], f[FIRST + 7] = step / ops, since[op] / ops  # newness: when it became ready
            f[FIRST + 8 : FIRST + 12] = 0
            for use in range(b.used_ptr[op], b.used_ptr[op + 1]):  # share: bytes of inputs over readers outside
                f[FIRST + 8] += b.size[b.used[use]] / max(1, s.outside[b.used[use]]) / unit
            for after in range(walk.next_ptr[op], walk.next_ptr[op + 1]):
                follower = walk.next[after]
                if s.waiting[follower] == 1:  # opens: ops that it makes ready; chain: the least change of one
                    change = (walk.change[follower] + s.used[follower]) / unit
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
        peak = max(peak, resident + walk.step[op] + s.used[op])
        resident += walk.change[op] + s.used[op]
        count -= 1
        s.ready[chosen] = s.ready[count]
        s.waiting[op], joined[op] = -1, step
        for at in range(b.used_ptr[op], b.used_ptr[op + 1]):
            buffer = b.used[at]
            if not b.is_final[buffer] and s.outside[buffer] == b.user_ptr[buffer + 1] - b.user_ptr[buffer]:
                for user in range(b.user_ptr[buffer], b.user_ptr[buffer + 1]):
                    s.used[b.users[user]] -= b.size[buffer]
            s.outside[buffer] -= 1
        for at in range(walk.next_ptr[op], walk.next_ptr[op + 1]):
            follower = walk.next[at]
            s.waiting[follower] -= 1
            if s.waiting[follower] == 0:
                s.ready[count], since[follower] = follower, step + 1
                count += 1
    return peak


def price(rule: Any, cases: list[Case]) -> Any:
    """Return the peaks of a rule over those of `lpmf`, shape `(cases,)`."""
    codes, constants = map(np.array, zip(*postfix(rule), strict=True))
    ratios = []
    for graph, walk, start, static, unit, lpmf in cases:
        state, f, joined = State(*(array.copy() for array in start)), np.zeros(len(NAMES)), np.zeros(graph.num_ops)
        peak = peak_of(graph.buffers, walk, state, f, static, unit, codes, constants, joined)
        ratios.append((peak + int(graph.persistent.sum())) / lpmf)
    return np.array(ratios)


def postfix(rule: Any) -> list[tuple[int, float]]:
    """Return the codes of a tree, operators after their numbers, and its constants."""
    if isinstance(rule, tuple):
        return [code for part in rule[1:] for code in postfix(part)] + [(CODES[rule[0]], 0.0)]
    return [(NAMES.index(rule), 0.0) if isinstance(rule, str) else (CONSTANT, rule)]


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
    inner = range(1, len(rule)) if isinstance(rule, tuple) else ()
    return [(path, rule), *(part for at in inner for part in parts(rule[at], (*path, at)))]


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


LPMF, RATIO = "(then (neg rise) (neg change))", "(neg (div change (sub used (mul 4.0 chain))))"
STARTS = ("(then (neg need) (neg change))", "(then (neg rise) (neg change))", "(sub (neg rise) change)", "newness",
          "(sub 0.0 postorder)", "(sub share own)", "(sub used own)", "(then (neg change) newness)")  # fmt: skip


def read(text: str) -> Any:
    """Return the tree of a rule as it is printed."""
    quoted = re.sub(r"[a-z]+", lambda word: f"'{word[0]}'", text)
    return ast.literal_eval(re.sub(r"(?<=[^(]) ", ", ", re.sub(r" +", " ", quoted)))


def show(rule: Any) -> str:
    """Return a rule as text."""
    return f"({' '.join(map(show, rule))})" if isinstance(rule, tuple) else str(rule)


def evolve(cases: list[Case], rules: int, rng: Any) -> list[tuple[float, Any]]:
    """Return the last population, the best rule first."""
    known: set[Any] = set()
    population: list[tuple[float, Any]] = []
    screened: list[float] = []

    def cost_at(at: int) -> float:
        return population[at][0]

    with suppress(KeyboardInterrupt):
        for number in range(rules):
            if number < POPULATION:
                rule = read(STARTS[number]) if number < len(STARTS) else grow(rng, 4)
            else:
                drawn = [min(rng.integers(len(population), size=TOURNAMENT), key=cost_at) for _ in "12"]
                rule = child_of(rng, *(population[at][1] for at in drawn))
            if rule in known or size(rule) > MOST_NODES:
                continue
            known.add(rule)
            first = price(rule, cases[:SCREEN])
            if number >= POPULATION and first.mean() > np.quantile(screened, 0.3):
                continue
            screened = [*screened[-300:], first.mean()]
            ratios = np.append(first, price(rule, cases[SCREEN:]))
            population.append((ratios.mean() + PER_NODE * size(rule), rule))
            if len(population) > POPULATION:
                population.pop(max(rng.integers(len(population), size=TOURNAMENT), key=cost_at))
            if number % 1000 == 0:
                best = min(population, key=lambda pair: pair[0])
                print(f"{number} {best[0]:.4f} {show(best[1])}", flush=True)
    return sorted(population, key=lambda pair: pair[0])


def draw(part: str, number: int) -> Any:
    """Draw a graph of a part."""
    rng = np.random.default_rng([SEED, list(GRAPHS).index(part), number])
    scale = 1 if part == "training" else 2
    if number % 10 < 6:
        return layered_graph(LayeredParameters(250 * scale), rng, "layered")
    return synthetic_graph(SyntheticParameters(50 * scale, 200 * scale), MODELS[number % 10 - 6], rng, "synthetic")


def compared(cases: list[Case], rules: list[str], seconds: float) -> dict[str, Any]:
    """Return the peaks of rules and methods over those of `lpmf`, shape `(cases,)` each; `auto` has some seconds."""

    def beam(graph: Any) -> Any:
        search = Search(schedopt.Problem(graph))
        return run_beam(search, graph.buffers, 10, NO_LIMIT, is_backward=True).chosen[::-1]

    def auto(graph: Any) -> Any:
        return schedopt.solve(schedopt.Problem(graph), "auto", time_limit=seconds, seed=0).schedule.op_order()

    methods = {
        "input": lambda graph: graph.input_order,
        "dfs-postorder": reverse_postorder,
        "dfs": lambda graph: kahn_order(graph, last_in_first_out=True),
        "beam of 10, backward": beam,
    } | ({f"auto, {seconds:g} s": auto} if seconds else {})
    found = {rule: price(read(rule), cases) for rule in rules}
    for name, order_of in methods.items():
        found[name] = np.array([peak_along(case.graph, order_of(case.graph)) / case.lpmf for case in cases])
    return found


def tell(title: str, rows: dict[str, Any], shown: Any) -> None:
    """Print how much lower than those of `lpmf` the peaks of some graphs are, with 95% intervals."""
    print(f"{title}: {shown.sum()} graphs, the peak below that of lpmf", flush=True)
    for name, ratios in rows.items():
        gains = 100 * (1 - ratios[shown])
        spread = 1.96 * gains.std(ddof=1) / len(gains) ** 0.5
        better, worse = (gains > 1e-9).sum(), (gains < -1e-9).sum()
        print(f"  {gains.mean():+6.2f} ± {spread:.2f}%, {better} better, {worse} worse: {name}", flush=True)


def main() -> None:
    """Search, or take the rule given, and tell it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--show", nargs="*", default=())
    given = parser.parse_args()
    cases = {part: [case_of(draw(part, number)) for number in range(count)] for part, count in GRAPHS.items()}
    rules = list(given.show)
    if not rules:
        last = evolve(cases["training"], given.rules, np.random.default_rng([given.seed, 0]))[:FINALISTS]
        costs = [price(rule, cases["choice"]).mean() for _, rule in last]
        rules = [show(last[int(np.argmin(costs))][1])]
        print(f"{rules[0]}: {100 * (1 - min(costs)):.2f}% on the choice", flush=True)
    rules = [LPMF, RATIO, *rules]
    names, rows = np.array([case.graph.name for case in cases["test"]]), compared(cases["test"], rules, 1.0)
    for title in ("test", "layered", "synthetic"):
        tell(title, rows, (names == title) | (title == "test"))
    if given.real:
        real = [case_of(schedopt.read_graph(file)) for file in sorted(given.real.rglob("*.pb.gz"))]
        tell("real", compared(real, rules, 0), np.full(len(real), True))


if __name__ == "__main__":
    main()
