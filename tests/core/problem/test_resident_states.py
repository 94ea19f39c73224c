"""Which state of a resident each op reads, and what a copy of it costs."""

import dataclasses

import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import Device, GraphBuilder, Machine, Problem, Schedule, ScheduleError
from schedopt.core.bounds.bounds import lower_bound
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.model.simulator import simulate
from schedopt.core.model.verifier import verify
from schedopt.core.problem.residents import with_homes

SIZE = 1000
EARLY, DECAY, ADD, BETWEEN, LATE, LAST = range(6)


def step(*, outputs=(0,), is_final=False, orders_between=True, more=(), **changes):
    """An update of one moment: read, decayed, added to, read; with one reader between both writes."""
    builder = GraphBuilder("step")
    builder.add_op("early", outputs=[8], runtime=1.0, persistent=SIZE)
    builder.add_op("decay", control=[EARLY], outputs=list(outputs), final=is_final, runtime=1.0)
    builder.add_op("add", inputs=[(DECAY, 0)], control=[3] if orders_between else [], outputs=[0], runtime=1.0)
    builder.add_op("between", inputs=[(DECAY, 0)], outputs=[8], runtime=1.0, final=True)
    builder.add_op("late", inputs=[(ADD, 0)], outputs=[8], runtime=1.0, final=True)
    builder.add_op("last", control=[LATE], outputs=[8], runtime=1.0, final=True)
    values = {"readers": (EARLY, BETWEEN, LATE, LAST), "writers": (DECAY, ADD)} | changes
    moment = Resident("moment", "state", SIZE, EARLY, values["readers"], values["writers"])
    return builder.build(Annotations(residents=(moment, *more)))


def test_readers_read_what_the_last_writer_before_them_left():
    (state,) = with_homes(step()).states
    made = {op: int(step().output_ptr[op]) for op in (DECAY, ADD)}
    assert state.later == {BETWEEN: made[DECAY], LATE: made[ADD], LAST: made[ADD]}
    assert state.at_home == (DECAY, ADD)


@pytest.mark.parametrize(
    ("graph", "kept"),
    [
        (step(orders_between=False), {DECAY, ADD, BETWEEN}),  # before or after `add`, as the order has it
        (step(outputs=(8,)), {DECAY, ADD, BETWEEN}),  # what it makes is something else
        (step(outputs=(0, 0)), {DECAY, ADD, BETWEEN}),  # which output is it?
        (step(is_final=True), {DECAY, ADD, BETWEEN}),
        (step(readers=(EARLY, LATE, LAST)), {DECAY, ADD}),  # BETWEEN reads the output, but not as the moment
        (step(readers=(LATE, LAST, BETWEEN), more=(Resident("w", "state", 0, -1, (), (ADD,)),)), {1, 2, 4, 5}),
    ],
)
def test_where_the_state_is_not_known_readers_stay_at_home(graph, kept):
    assert set(with_homes(graph).states[0].at_home) == kept


def test_the_op_that_is_said_to_hold_it_may_read_a_later_state_elsewhere():
    graph = step()
    (moment,) = graph.annotations.residents
    graph = dataclasses.replace(graph, annotations=Annotations(residents=(dataclasses.replace(moment, op=LATE),)),
                                persistent=np.eye(6, dtype=np.int64)[LATE] * SIZE)  # fmt: skip
    problem, schedule = away(graph, [EARLY, LATE, LAST])
    (state,) = problem.graph.states
    assert LATE in state.later and LATE not in state.at_home
    costs = simulate(problem, schedule)
    totals = verify(problem, schedule, peak=costs.peak, runtime=costs.runtime)
    assert totals.peak_per_device == costs.peak_per_device.tolist()
    is_kept = schedule.items != ~state.later[LATE]
    assert not is_kept.all()  # what the last writer left is sent
    columns = schedule.items[is_kept], schedule.sources[is_kept], schedule.targets[is_kept]
    with pytest.raises(ScheduleError):
        verify(problem, Schedule.from_steps(*(column.tolist() for column in columns)))


def test_the_bound_of_the_peak_counts_a_later_state():
    notes = Annotations(residents=(Resident("w", "state", SIZE, 0, (1,), (0,)),))
    graph = sketch(f"write -> 0 keep={SIZE}; read: write -> 80", "late", notes)
    assert lower_bound(Problem(graph, "memory", machine=machine())) == SIZE + 80


def machine(**values):
    linked, apart = np.full((2, 2), 1e9), np.zeros((2, 2))
    return Machine((Device("a", "gpu"), Device("b", "gpu")), linked, apart, **values)


def away(graph, ops):
    """A schedule with some ops on the other device, each copy sent just before its first reader."""
    problem = Problem(graph, "runtime", machine=machine(transfers="blocking"))
    graph = problem.graph
    placement = np.isin(np.arange(graph.num_ops), ops).astype(int)
    columns, sent = ([], [], []), set()
    for op in graph.input_order.tolist():
        for tensor in graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]].tolist():
            source, target = placement[graph.tensor_producer[tensor]], placement[op]
            if source != target and (tensor, target) not in sent:
                sent.add((tensor, target))
                for column, value in zip(columns, (~tensor, source, target), strict=True):
                    column.append(value)
        for column, value in zip(columns, (op, placement[op], placement[op]), strict=True):
            column.append(value)
    return problem, Schedule.from_steps(*columns)


def test_a_reader_elsewhere_pays_for_a_copy_of_each_state():
    problem, schedule = away(step(), [EARLY, BETWEEN, LATE, LAST])
    costs = simulate(problem, schedule)
    verify(problem, schedule, peak=costs.peak, runtime=costs.runtime)
    names = [problem.graph.tensor_name(~item) for item in schedule.items.tolist() if item < 0]
    assert [name for name in names if "control" not in name] == ["moment:0", "decay:0", "add:0"]
    assert costs.runtime == pytest.approx(6 + 3 * SIZE / 1000)  # microseconds at 1 GB/s
    assert costs.peak_per_device.tolist() == [SIZE, SIZE + 3 * 8]  # one copy at a time, and what they make


def test_at_home_states_take_no_bytes_of_their_own():
    problem, schedule = away(step(), [])
    costs = simulate(problem, schedule)
    verify(problem, schedule, peak=costs.peak, runtime=costs.runtime)
    assert costs.peak_per_device.tolist() == [SIZE + 3 * 8, 0]


def test_the_verifier_refuses_a_reader_elsewhere_whose_state_is_not_known():
    problem, schedule = away(step(orders_between=False), [BETWEEN])
    with pytest.raises(ScheduleError, match="are to be at the home of 'moment'"):
        verify(problem, schedule)
