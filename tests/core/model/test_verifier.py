"""The verifier: one test per broken rule, and corrupted schedules judged against their plain-Python twin."""

import pytest
from models.small_graphs import sketch
from schedopt import Problem, Schedule, ScheduleError
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import StepClaim, verify

# a on device 0 makes a:0 (4 bytes) and a:1 (6); b on 0 reads a:0; c on 1 reads both and waits for b; d on 1 reads c.
A, B, C, D = range(4)
A0, A1, B0, B_CONTROL, C0 = (~tensor for tensor in range(5))
VALID = [(A, 0, 0), (A0, 0, 1), (A1, 0, 1), (B, 0, 0), (B_CONTROL, 0, 1), (C, 1, 1), (D, 1, 1)]


def small_problem(**values):
    graph = sketch("a -> 4 6 us=1; b: a -> 2 us=2; c: a a.1 !b -> 3 us=4; d: c -> us=8", "net")
    return Problem(graph, devices=2, **values)


def schedule_with(change=None):
    steps = list(VALID)
    if change:
        change(steps)
    return Schedule.from_steps(*zip(*steps, strict=True))


def swap(one, two):
    def change(steps):
        steps[one], steps[two] = steps[two], steps[one]

    return change


def put(at, *step):
    return lambda steps: steps.__setitem__(at, step)


def add(*step, at=len(VALID)):
    return lambda steps: steps.insert(at, step)


def remove(at):
    return lambda steps: steps.pop(at)


def test_the_schedule_before_it_is_broken():
    """Device 0 holds a:0 and a:1, then a:0 and b's output; device 1 both copies, then with c's output."""
    totals = verify(small_problem(), schedule_with())
    assert (totals.peak_per_device, totals.peak, totals.runtime) == ([10, 13], 13, 15.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove(6), "op 'd' never runs"),
        (add(D, 1, 1), "op 'd' runs twice"),
        (put(3, A, 0, 0), "op 'a' runs twice"),
        (put(3, B, 0, 1), "op 'b' runs on two devices"),
        (put(3, B, 2, 2), "op 'b' uses device 2, but the last one is 1"),
        (put(3, B, -1, -1), "op 'b' uses device -1"),
        (add(4, 0, 0), "names item 4, which the graph does not have"),
        (add(~5, 0, 1), "names item -6, which the graph does not have"),
        (swap(0, 3), "op 'b' runs on device 0 without its input 'a:0'"),
        (swap(5, 6), "op 'd' runs on device 1 without its input 'c:0'"),
        (put(3, B, 1, 1), "'b:control' is sent from device 0, where it is not produced"),
        (remove(1), "op 'c' runs on device 1 without its input 'a:0'"),
        (remove(4), "op 'c' runs on device 1 without its input 'b:control'"),
        (swap(0, 1), "'a:0' is sent from device 0 before it is there"),
        (add(A1, 0, 1, at=3), "'a:1' is sent to device 1 twice"),
        (add(A1, 1, 0), "'a:1' is sent from device 1, where it is not produced"),
        (add(A1, 0, 0, at=3), "'a:1' is sent to device 0, where no op reads it"),
        (add(B0, 0, 1, at=4), "'b:0' is sent to device 1, where no op reads it"),
    ],
)
def test_each_broken_rule_is_named(change, message):
    with pytest.raises(ScheduleError, match=f"^net: .*{message}"):
        verify(small_problem(), schedule_with(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove(6), "each op exactly once"),
        (add(4, 0, 0), "each op exactly once"),
        (put(3, B, 2, 2), "devices outside 0 to 1"),
        (remove(1), "transfers are not those"),
        (add(A1, 0, 1), "transfers are not those"),
        (swap(5, 6), "step 6 runs before its inputs"),
    ],
)
def test_the_simulator_refuses_what_it_cannot_price(change, message):
    with pytest.raises(ScheduleError, match=f"^net: .*{message}"):
        simulate(small_problem(), schedule_with(change))


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"peak_per_device": [10, 12]}, r"claims peaks of \[10, 12\] bytes, but takes \[10, 13\]"),
        ({"peak_per_device": [10, 13, 0]}, "claims peaks"),
        ({"runtime": 15.001}, "claims 15.001 us, but takes 15.0 us"),
        ({"runtime": float("nan")}, "claims nan us"),
        ({"peak": 12}, "claims a peak of 12 bytes, but takes 13"),
    ],
)
def test_totals_that_differ(claim, message):
    with pytest.raises(ScheduleError, match=message):
        verify(small_problem(), schedule_with(), **claim)


# What is true of each step of `VALID`: it frees nothing until b has read a:0 and it was sent.
TRUE = [
    StepClaim(0.0, 1.0, None, frozenset()),
    StepClaim(1.0, 1.0, 4, frozenset()),
    StepClaim(1.0, 1.0, 6, frozenset({1})),
    StepClaim(1.0, 3.0, None, frozenset({0, 2})),
    StepClaim(3.0, 3.0, 0, frozenset()),
    StepClaim(3.0, 7.0, None, frozenset({0, 1})),
    StepClaim(7.0, 15.0, None, frozenset({4})),
]


def test_claims_of_steps_that_hold():
    assert verify(small_problem(), schedule_with(), steps=TRUE, peak=13).runtime == 15.0
    nothing = [StepClaim()] * len(VALID)
    assert verify(small_problem(), schedule_with(), steps=nothing).runtime == 15.0


@pytest.mark.parametrize(
    ("step", "claim", "message"),
    [
        (0, {"start": 1.0}, "step 1, op 'a', starts at 0.0 us, but the schedule claims 1.0 us"),
        (0, {"end": 9.0}, "step 1, op 'a', ends at 1.0 us, but the schedule claims 9.0 us"),
        (2, {"size": 4}, "step 3, transfer of 'a:1', sends 6 bytes, but the schedule claims 4"),
        (3, {"size": 0}, "step 4, op 'b', sends no bytes"),
        (3, {"freed": frozenset({0})}, "step 4, op 'b', frees 'b:0', but the schedule claims otherwise"),
        (4, {"freed": frozenset({3})}, "step 5, transfer of 'b:control', does not free 'b:control'"),
        (1, {"freed": frozenset({0})}, "step 2, transfer of 'a:0', does not free 'a:0'"),
    ],
)
def test_claims_of_steps_that_do_not_hold(step, claim, message):
    claims = [*TRUE[:step], TRUE[step]._replace(**claim), *TRUE[step + 1 :]]
    with pytest.raises(ScheduleError, match=f"^net: {message}"):
        verify(small_problem(), schedule_with(), steps=claims)


def test_the_limit_is_enforced_unless_it_is_known_to_be_exceeded():
    assert verify(small_problem(memory_limit=13), schedule_with()).peak == 13
    over = small_problem(memory_limit=12)
    with pytest.raises(ScheduleError, match="takes 13 bytes on a device, over the limit of 12"):
        verify(over, schedule_with())
    assert verify(over, schedule_with(), enforce_limit=False).peak == 13
