"""Measure plans of several streams of an ONNX program: time, when each node ran, and equal results."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...graph.graph import CostGraph
from ..fresh_process import ask
from ..measurement import OnRun
from ..stream_plans import Spans, StreamPlan, predict
from ..stream_report import StreamReport, StreamRow
from .program import OnnxProgram
from .stream_run import ONE_STREAM, OWN_WAYS

_UNORDERED = ("Shape", "Size")
"""Nodes that ONNX Runtime runs as soon as it can, wherever the file has them."""


def measure_streams(
    program: OnnxProgram,
    graph: CostGraph,
    plans: Mapping[str, StreamPlan],
    repeats: int,
    note: Callable[[str], None],
    on_run: OnRun = lambda number, total, order: None,
) -> StreamReport:
    """Measure a program on one stream, as ONNX Runtime runs it by itself with as many threads, and in plans.

    All have optimisations off and ONNX Runtime's own memory; constants are computed beforehand. Plans have one thread
    per stream.
    In a process the ways run in turns, one run each, so that what slows a while slows them alike.

    Parameters
    ----------
    program, graph
        What to measure, and its graph.
    plans
        By what to call them.
    repeats
        Rounds, each a process of its own.
    note, on_run
        Called with each remark worth showing; told before each round.

    Returns
    -------
    StreamReport
        Only the rounds that ran, if Ctrl-C ended it after the first.

    Raises
    ------
    ProgramError
        If ONNX Runtime cannot run the model, or not on streams.
    """
    asked = {label: [(program.names[op], plan.stream_of[op]) for op in plan.order] for label, plan in plans.items()}
    question = {**program.question, "plans": asked}
    rounds: list[Any] = []
    try:
        for number in range(1, repeats + 1):
            on_run(number, repeats, "all plans in turns")
            rounds.append(ask("onnx.stream_run", question))
    except KeyboardInterrupt:
        if not rounds:
            raise
    return _report(program, graph, plans, rounds, note)


def _report(
    program: OnnxProgram,
    graph: CostGraph,
    plans: Mapping[str, StreamPlan],
    rounds: Sequence[Any],
    note: Callable[[str], None],
) -> StreamReport:
    expected = rounds[0]["ways"][ONE_STREAM]["digests"]
    microseconds = [
        statistics.median(one["node_microseconds"].get(name, 0.0) for one in rounds) for name in program.names
    ]
    hand_over = statistics.median(one["hand_over"] for one in rounds)
    known = {ONE_STREAM: StreamPlan(tuple(range(graph.num_ops)), (0,) * graph.num_ops), **plans}
    rows = []
    for label in (*OWN_WAYS, *plans):
        ways = [one["ways"][label] for one in rounds]
        plan = known.get(label)
        foreseen = None if plan is None else predict(graph, plan, microseconds, hand_over)
        spans = None
        if label in plans:
            spans = _median_spans(program, [one["spans"][label] for one in rounds])
            _note_order(program, label, plans[label], spans, note)
        rows.append(
            StreamRow(
                label=label,
                microseconds=tuple(statistics.median(way["runs"]) for way in ways),
                runs=tuple(tuple(way["runs"]) for way in ways),
                waits=tuple(tuple(way["waits"]) for way in ways),
                is_equal=all(way["digests"] == expected for way in ways) and len(expected) == 1,
                plan=plan,
                predicted=None if foreseen is None else foreseen.makespan,
                spans=spans,
                predicted_spans=foreseen,
            )
        )
    waits = sum(sum(one["ways"][row.label]["waits"]) for row in rows for one in rounds)
    used = sum(one["used"] for one in rounds)
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return StreamReport(graph, tuple(rows), hand_over, waits / (waits + used) if waits else 0.0, cores)


def _median_spans(program: OnnxProgram, profiles: Sequence[Sequence[tuple[str, float, float]]]) -> Spans:
    """Return when each node ran in the profile of median length; a node without a kernel at no time."""
    ordered = sorted(profiles, key=lambda run: max(start + length for _, start, length in run))
    taken = {name: (start, start + length) for name, start, length in ordered[len(ordered) // 2]}
    spans = np.array([taken.get(name, (0.0, 0.0)) for name in program.names])
    return Spans(spans[:, 0], spans[:, 1])


def _note_order(program: OnnxProgram, label: str, plan: StreamPlan, spans: Spans, note: Callable[[str], None]) -> None:
    """Say if ONNX Runtime did not run the nodes of each stream one after the other in the plan's order."""
    for stream in plan.streams:
        ops = [op for op in stream if program.nodes[op].op_type not in _UNORDERED]
        for op, following in pairwise(ops):
            if spans.start[following] < spans.end[op] - 1.0:  # the profile counts whole microseconds
                note(
                    f"{label}: ONNX Runtime began node '{program.names[following]}' before '{program.names[op]}' of "
                    "the same stream had ended: the plan was not followed"
                )
                return
