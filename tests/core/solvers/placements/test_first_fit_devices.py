"""Placements that fill one device after another."""

from schedopt import GraphBuilder, Problem
from schedopt.core.search.search import Search
from schedopt.core.solvers.placements.first_fit_devices import filled_placements


def test_what_reads_an_activation_goes_back_to_it():
    """A chain and its backward pass, whose activations take more than half of what one device has."""
    builder = GraphBuilder("training")
    last = None
    for op in range(4):
        last = builder.add_op(f"forward {op}", inputs=[] if last is None else [(last, 0)], outputs=[100], runtime=1.0)
    for op in reversed(range(4)):
        last = builder.add_op(f"backward {op}", inputs=[(last, 0), (op, 0)], outputs=[1], runtime=1.0)
    problem = Problem(builder.build(), "runtime", 2, memory_limit=220, bandwidth=1e6)
    assert list(filled_placements(problem, Search(problem, deadline=0.0).cancellable)) == [], "time has run out"
    placement = next(filled_placements(problem)).tolist()
    assert placement[0] != placement[3], "one device has no room for all"
    assert placement[:4] == placement[:3:-1], "forward and backward op are on one device"
