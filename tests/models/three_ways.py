"""A random instance in three ways: the simulator, the verifier, and all schedules by trying them."""

import math

import naive
import numpy as np
from schedopt import Problem, Schedule
from schedopt.core.bounds.bounds import is_met
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.solve.solve import solve

MOST_OPS, MOST_PLACED_OPS = 8, 4


def disagreement(seed):
    """Return what does not agree on the instance of a seed, or nothing."""
    rng = np.random.default_rng([21, seed])
    devices = int(rng.choice([1, 1, 1, 2]))
    graph, plain = naive.random_graph(rng, int(rng.integers(1, (MOST_OPS if devices == 1 else MOST_PLACED_OPS) + 1)))
    links = {} if devices == 1 else {"bandwidth": 1e6, "latency": 1.0}
    task = "memory" if devices == 1 else str(rng.choice(["memory", "runtime"]))
    problem = Problem(graph, task, devices, **links)
    schedule = _random_schedule(rng, plain, devices)
    priced, replayed = simulate(problem, schedule), verify(problem, schedule)
    if priced.peak_per_device.tolist() != replayed.peak_per_device or not is_met(priced.runtime, replayed.runtime):
        return f"simulator {priced.peak_per_device}, {priced.runtime}; verifier {replayed}"
    if devices == 1:
        best = naive.least_peak(plain)
        result = solve(problem, "order-search", evaluations=2000)
    else:
        best = naive.best_schedule(plain, devices, task, **links)[1]
        result = solve(problem, "brkga", evaluations=100, seed=seed)
    if result.value < best * (1 - 1e-9) or result.lower_bound > best * (1 + 1e-9):
        return f"exhaustive search {best}; {result.method} {result.value}, bound {result.lower_bound}"
    if result.status == "optimal" and not math.isclose(result.value, best, rel_tol=1e-9):
        return f"{result.method} calls {result.value} optimal; exhaustive search {best}"
    return ""


def _random_schedule(rng, plain, devices):
    if devices == 1:
        return Schedule.single_device(np.array(naive.random_order(rng, plain), np.int32))
    placement, steps = naive.random_steps(rng, plain, devices)
    return Schedule.from_steps(*naive.schedule_of(plain, placement, steps))
