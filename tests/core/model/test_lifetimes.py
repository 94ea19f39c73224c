"""Lifetimes: what each step is the last to need is what sets worked out from scratch hold no more after it."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.model.timeline import freed_after
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule


def held(plain, placement, done):
    """Return the `(tensor, device)` whose bytes are needed after a set of steps, worked out from scratch."""

    def buffer(tensor, device):
        inside = tensor in plain.alias and placement[tensor[0]] == device
        return buffer(plain.alias[tensor], device) if inside else (tensor, device)

    def is_needed(tensor, device):
        if any(placement[reader] == device and reader not in done for reader in plain.readers[tensor]):
            return True
        unsent = {step for step in naive.needed_transfers(plain, placement) - done if step[0] == tensor}
        return placement[tensor[0]] == device and bool(tensor in plain.final or unsent)

    made = {(tensor, placement[op]) for op in done if not isinstance(op, tuple) for tensor in plain.outputs[op]}
    here = made | {step for step in done if isinstance(step, tuple)}
    needed = {buffer(*copy) for copy in here if is_needed(*copy)}
    return {copy for copy in here if buffer(*copy) in needed}


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_what_a_step_frees_is_what_is_not_held_any_more(seed):
    devices = 1 + seed % 3
    rng = np.random.default_rng([75, seed])
    graph, plain = naive.random_graph(rng, 9)
    placement, steps = naive.random_steps(rng, plain, devices)
    problem = Problem(graph, devices=devices)
    freed = freed_after(problem, Schedule.from_steps(*naive.schedule_of(plain, placement, steps)))
    done, before = set(), set()
    for step, tensors in zip(steps, freed, strict=True):
        done.add(step)
        came = {step} if isinstance(step, tuple) else {(tensor, placement[step]) for tensor in plain.outputs[step]}
        after = held(plain, placement, done)
        gone = (before | came) - after
        device = placement[step[0][0] if isinstance(step, tuple) else step]
        assert {plain.tensors[t] for t in tensors} == {t for t, _ in gone if t[1] != naive.CONTROL}
        assert {d for _, d in gone} <= {device}
        before = after
