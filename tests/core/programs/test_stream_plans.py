"""Streams of a schedule, and when their ops should run, against an event simulation that shares nothing with it."""

import dataclasses

import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.bounds.bounds import lower_bound
from schedopt.core.files.schedule_json import LoadedSchedule
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.problem.problem import Problem
from schedopt.core.problem.schedule import Schedule
from schedopt.core.programs.stream_plans import StreamPlan, predict, stream_plan
from schedopt.core.programs.stream_report import StreamReport, StreamRow, stream_sentences


def random_plan(seed, streams=3):
    """A random graph with control edges, and its ops in input order on random streams, each of which has some."""
    random = np.random.default_rng(seed)
    builder = GraphBuilder("random")
    ops = int(random.integers(streams, 15))
    for op in range(ops):
        sources = random.choice(op, size=min(op, int(random.integers(0, 3))), replace=False).tolist()
        data, control = sources[:1], sources[1:]
        builder.add_op(
            f"op{op}",
            inputs=[(source, 0) for source in data],
            control=control,
            outputs=[8],
            runtime=float(random.integers(1, 20)),
        )
    placed = random.permutation([*range(streams), *random.integers(0, streams, ops - streams).tolist()])
    return builder.build(), StreamPlan(tuple(range(ops)), tuple(placed.tolist()))


def simulated(graph, plan, hand_over, tick=0.5):
    """When each op runs if all streams are watched from tick to tick."""
    before = {op: set() for op in range(graph.num_ops)}
    for source, target in zip(*(edge.tolist() for edge in graph.edges), strict=True):
        before[target].add(source)
    waiting = [list(stream) for stream in plan.streams]
    start, end, now = {}, {}, 0.0
    while any(waiting):
        for stream, ops in enumerate(waiting):
            if not ops or any(end[op] > now for op in plan.streams[stream] if op in end):
                continue
            late = [end.get(op, np.inf) + hand_over * (plan.stream_of[op] != stream) for op in before[ops[0]]]
            if all(time <= now for time in late):
                op = ops.pop(0)
                start[op], end[op] = now, now + graph.runtime[op]
        now += tick
    return [start[op] for op in range(graph.num_ops)], [end[op] for op in range(graph.num_ops)]


@pytest.mark.parametrize("seed", seeds(30, quick=4))
@pytest.mark.parametrize("hand_over", [0.0, 2.5])
def test_prediction_is_that_of_an_event_simulation(seed, hand_over):
    graph, plan = random_plan(seed)
    spans = predict(graph, plan, graph.runtime.tolist(), hand_over)
    start, end = simulated(graph, plan, hand_over)
    assert spans.start.tolist() == start
    assert spans.end.tolist() == end
    assert spans.makespan >= lower_bound(Problem(graph, "runtime", devices=3))
    one = StreamPlan(plan.order, (0,) * graph.num_ops)
    assert predict(graph, one, graph.runtime.tolist(), hand_over).makespan == graph.runtime.sum()


def test_a_device_without_ops_is_no_stream(diamond):
    schedule = Schedule.from_steps([0, ~0, 1, 2, 3, 4, ~3, 5], [1, 1, 1, 4, 1, 4, 1, 4], [1, 4, 1, 4, 1, 4, 4, 4])
    loaded = LoadedSchedule(Problem(diamond, devices=5), schedule, "feasible", None, None, 7.5, ())
    plan = stream_plan(loaded, diamond)
    assert (plan.count, plan.streams, plan.planned) == (2, ((0, 1, 3), (2, 4, 5)), 7.5)
    assert plan.hand_overs(diamond) == 2


@pytest.fixture
def diamond():
    builder = GraphBuilder("diamond")
    builder.add_op("start", outputs=[10], runtime=1)
    builder.add_op("wide1", inputs=[(0, 0)], outputs=[8], runtime=2)
    builder.add_op("wide2", inputs=[(0, 0)], outputs=[8], runtime=2)
    builder.add_op("narrow1", inputs=[(1, 0)], outputs=[1], runtime=1)
    builder.add_op("narrow2", inputs=[(2, 0)], outputs=[1], runtime=1)
    builder.add_op("join", inputs=[(3, 0), (4, 0)], outputs=[1], is_final=True, runtime=1)
    return builder.build()


def test_the_report_says_what_a_hand_over_costs_and_how_busy_the_machine_was(diamond):
    plan = StreamPlan(tuple(range(6)), (0, 0, 1, 0, 1, 1), 6.0)
    one = StreamRow("one stream", (100.0, 110.0), ((100.0,), (110.0,)), ((0.0,), (0.0,)), True)
    row = dataclasses.replace(one, label="plan.json", microseconds=(50.0, 55.0), plan=plan, predicted=60.0)
    assert row.error == pytest.approx(60 / 52.5 - 1)
    said = stream_sentences(StreamReport(diamond, (one, row), hand_over=12.3, waited=0.4, cores=3))
    assert said == [
        "Time of plan.json against one stream: 50% faster (95% interval -50% to -50%).",
        "plan.json was planned to take 6 us; 2 results cross streams.",
        "A hand-over between streams takes 12.3 us here: solve with --latency 13us counts it.",
        "The machine is busy: threads waited for a core in 40% of their time, so that these times say little of an "
        "idle one.",
    ]
    assert len(stream_sentences(StreamReport(diamond, (one, row), hand_over=12.3, waited=0.01, cores=3))) == 3
    assert stream_sentences(StreamReport(diamond, (one, row), hand_over=12.3, waited=0.4, cores=2))[-1] == (
        "Threads waited for a core in 40% of their time: 2 streams and the thread that calls them want 3 cores, and "
        "here are 2."
    )
