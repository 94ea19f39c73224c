"""Sequences of runs under edits, and their annealing: after each, the bytes are those of the simulator."""

import numpy as np
import pytest
import schedopt
from models.repeated_runs import random_graph
from models.seeds import seeds
from schedopt import Problem, Schedule
from schedopt.core.kernels.runs import sequences
from schedopt.core.kernels.runs.sequences import MOST_TIMES, delete_run, insert_run, shift_run
from schedopt.core.model.simulator import simulate


class Edited:
    """A graph and a sequence of its runs."""

    def __init__(self, graph, order):
        self.graph = graph
        self.arrays = sequences.run_graph(graph)
        self.capacity = 3 * graph.num_ops + 20
        self.sequence = sequences.new_sequence(self.arrays, self.capacity)
        assert sequences.set_sequence(self.arrays, self.sequence, np.array(order, np.int32))

    @property
    def order(self):
        return self.sequence.items[: self.sequence.length[0]].tolist()

    def excess(self, limit):
        return int(np.maximum(self.sequence.memory[: len(self.order)] - limit, 0).sum())

    def check(self):
        """Compare everything with what an order of its own costs."""
        order, s = self.order, self.sequence
        simulation = simulate(Problem(self.graph, recompute=True), Schedule.single_device(np.array(order)))
        assert s.memory[: len(order)].tolist() == simulation.step_memory.tolist()
        for op in range(self.graph.num_ops):
            places = [step for step, other in enumerate(order) if other == op]
            assert s.places[op, : s.times[op]].tolist() == places
            assert s.number[places].tolist() == list(range(len(places)))
        assert not s.is_edited.any()

    def may_be(self, order):
        try:
            simulate(Problem(self.graph, recompute=True), Schedule.single_device(np.array(order)))
        except schedopt.ScheduleError:
            return False
        return True


def random_edit(edited, rng):
    """Insert or delete a run at random; return the order that it shall give, or None if it is not tried."""
    s, order = edited.sequence, edited.order
    step = int(rng.integers(len(order)))
    if rng.random() < 0.5:
        op = int(rng.integers(edited.graph.num_ops))
        if edited.graph.runs_once[op] or s.times[op] == MOST_TIMES or len(order) == edited.capacity:
            return None
        order.insert(step, op)
        inserted = insert_run(edited.arrays, s, op, step)
        return order if inserted else "refused"
    if s.times[order[step]] == 1:
        return None
    delete_run(edited.arrays, s, step)
    del order[step]
    return order


def random_shift(edited, rng):
    """Shift a run at random where no run between hinders it; return the order that it shall give."""
    s, order, graph = edited.sequence, edited.order, edited.graph
    step, place = int(rng.integers(len(order))), int(rng.integers(len(order)))
    op = order[step]
    low, high = min(step, place), max(step, place)
    beside = {*graph.predecessors[1][slice(*graph.predecessors[0][op : op + 2])].tolist()}
    beside |= {*graph.successors[1][slice(*graph.successors[0][op : op + 2])].tolist(), op}
    if step != place and not beside & set(order[low:step] + order[step + 1 : high + 1]):
        limit = int(rng.choice(s.memory[: len(order)]))
        before = edited.excess(limit)
        rise = shift_run(edited.arrays, s, step, place, limit)
        assert rise == edited.excess(limit) - before
        order.insert(place, order.pop(step))
    return order


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(12, quick=2))
def test_edits_and_their_undoing_give_the_bytes_of_the_simulator(seed):
    rng = np.random.default_rng([31, seed])
    graph = random_graph(rng, int(rng.integers(2, 14)))
    edited = Edited(graph, graph.input_order)
    edited.check()
    undone = 0
    for _ in range(250):
        before = edited.order
        sequences.begin(edited.sequence)
        wanted = None
        for _ in range(int(rng.integers(1, 4))):
            wanted = random_edit(edited, rng) or wanted
            if wanted == "refused":
                break
        if wanted == "refused":
            is_valid = False
        else:
            is_valid = bool(sequences.finish(edited.arrays, edited.sequence))
            assert is_valid == edited.may_be(edited.order)
        if is_valid and rng.random() < 0.7:
            assert edited.order == (wanted or before)
        else:
            sequences.undo(edited.sequence)
            assert edited.order == before
            undone += 1
        edited.check()
        assert random_shift(edited, rng) == edited.order
        edited.check()
    assert undone > 0
