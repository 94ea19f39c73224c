"""Timelines of random schedules of random graphs."""

import naive
import numpy as np
from schedopt import Problem, Schedule
from schedopt.core.model.timeline import timeline_of
from schedopt.core.report.result import reference_timeline


def random_timeline(stream, seed, devices, ops=15, **values):
    """Draw a graph of so many ops, of 2 to 24 for None, and a schedule; each stream of seeds is another."""
    rng = np.random.default_rng([stream, seed, devices])
    graph, plain = naive.random_graph(rng, ops or int(rng.integers(2, 25)))
    placement, steps = naive.random_steps(rng, plain, devices)
    schedule = Schedule.from_steps(*naive.schedule_of(plain, placement, steps))
    return timeline_of(f"seed {seed}", Problem(graph, devices=devices, **values), schedule)


def input_timeline(graph):
    return reference_timeline(Problem(graph))
