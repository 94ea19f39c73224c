"""Plans of several streams of an ONNX program, run in a process of its own; asks and answers are JSON."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ..options import Size
from ..timing import ENOUGH_MICROSECONDS, MOST_RUNS
from .hand_over import measured_hand_over
from .program import OnnxProgram, read_program
from .run import digests, ordered_session
from .session import constant_tensors, kernel_spans, random_inputs, runnable
from .streams import partition_text, stream_options, streams_of_nodes

ONE_STREAM = "one stream"
INTRA_OP = "intra-op threads"
PARALLEL = "ORT_PARALLEL"
OWN_WAYS = (ONE_STREAM, INTRA_OP, PARALLEL)
PROFILED_RUNS = 7
Span = tuple[str, float, float]


class StreamRunner:
    """A program in one process, ready to run in several ways.

    Who calls a plan waits for it in a thread of its own, which gives way to all others: ONNX Runtime has it ask all the
    time whether the streams have ended, and would take a core from them.

    Parameters
    ----------
    program
        What runs.
    plans
        By what to call them: the nodes of each stream, in the order in which all run, as pairs of name and stream.
    folder
        For partitions and profiles.
    """

    def __init__(self, program: OnnxProgram, plans: Mapping[str, Sequence[tuple[str, int]]], folder: Path) -> None:
        self.program, self.folder = program, folder
        self.constants = constant_tensors(program)
        self.inputs = random_inputs(program)
        self.caller = ThreadPoolExecutor(1)
        self.waiting = self.caller.submit(give_way).result()
        self.threads = 1 + max(stream for plan in plans.values() for _, stream in plan)
        self.plans = {ONE_STREAM: [(name, 0) for name in program.names], **plans}
        self.partitions: dict[str, Path | None] = {label: self._partition(label) for label in self.plans}

    def session(self, label: str, profiles: str | None = None) -> Any:
        """Load the program to run in one of the ways."""
        plan = self.plans.get(label)
        streams = 2 if plan is None else 1 + max(stream for _, stream in plan)
        order = [name for name, _ in self.plans.get(label, self.plans[ONE_STREAM])]
        return ordered_session(self.program, order, self.constants, lambda: self._options(label, streams, profiles))

    def _options(self, label: str, streams: int, profiles: str | None) -> onnxruntime.SessionOptions:
        options = stream_options(streams, self.partitions.get(label), profiles)
        if label == PARALLEL:
            options.inter_op_num_threads = 0
        if label == INTRA_OP:
            options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
            options.intra_op_num_threads = self.threads
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options

    def run(self, label: str, session: Any) -> tuple[Any, float]:
        """Run the program once; return its outputs and the microseconds that it took."""
        if self.partitions.get(label) is None:
            return self._timed(session)
        return self.caller.submit(self._timed, session).result()

    def _timed(self, session: Any) -> tuple[Any, float]:
        start = time.perf_counter_ns()
        outputs = session.run(None, self.inputs)
        return outputs, (time.perf_counter_ns() - start) / 1000

    def profile(self, label: str) -> list[list[Span]]:
        """Return node, start and microseconds of each kernel, by their starts, in `PROFILED_RUNS` warm runs."""
        session = self.session(label, str(self.folder))
        for _ in range(1 + PROFILED_RUNS):
            self.run(label, session)
        spans = kernel_spans(session)
        length = len(spans) // (1 + PROFILED_RUNS)
        return [spans[run * length : (run + 1) * length] for run in range(1, 1 + PROFILED_RUNS)]

    def _partition(self, label: str) -> Path | None:
        stream_of = dict(self.plans[label])
        if not any(stream_of.values()):
            return None
        path = self.folder / f"{len(list(self.folder.iterdir()))}.json"
        path.write_text(
            partition_text(
                streams_of_nodes(self.program, runnable(self.program, list(stream_of), self.constants), stream_of)
            )
        )
        return path


def run_streams(
    path: str,
    shapes: Mapping[str, Size],
    plans: Mapping[str, Sequence[tuple[str, int]]],
    observed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a program on one stream, as ONNX Runtime does by itself with as many threads, and in plans, in turns.

    By itself it shares each node among intra-op threads, or runs on the streams that its parallel executor chooses.

    Parameters
    ----------
    path, shapes, observed
        As `read_program`.
    plans
        As `StreamRunner`.

    Returns
    -------
    dict
        Per way: `runs` in microseconds and `waits`, what threads waited for a core in each; the distinct `digests` of
        its runs. `node_microseconds`, the `node_times` on one stream; `spans` of each plan, of the run of median
        length; `hand_over` in microseconds; `used`, what the threads worked in all runs, microseconds.
    """
    with tempfile.TemporaryDirectory() as temporary:
        runner = StreamRunner(read_program(path, shapes, observed), plans, Path(temporary))
        ways = [*OWN_WAYS, *plans]
        report = _in_turns(runner, ways)
        nodes = node_times(runner.profile(ONE_STREAM))
        spans = {label: _median_run(runner.profile(label)) for label in plans}
    return {**report, "node_microseconds": nodes, "spans": spans, "hand_over": measured_hand_over()}


def node_times(runs: Sequence[Sequence[Span]]) -> dict[str, float]:
    """Return the median microseconds of each node in runs on one stream, until the next one starts.

    What runs within a node, as the body of an If or a Loop does, is part of it.
    """
    times: dict[str, list[float]] = {}
    for spans in runs:
        run = sorted(spans, key=lambda span: (span[1], -span[2]))
        ends = np.maximum.accumulate([start + length for _, start, length in run])
        outer = [run[0], *(span for span, end in zip(run[1:], ends, strict=False) if span[1] >= end)]
        following = [start for _, start, _ in outer[1:]] + [float(ends[-1])]
        for (name, start, _), end in zip(outer, following, strict=True):
            times.setdefault(name, []).append(end - start)
    return {name: statistics.median(values) for name, values in times.items()}


def give_way() -> int:
    """Give the calling thread the lowest priority, where threads have one; return its number."""
    thread = threading.get_native_id()
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, thread, 19)
    return thread


def _in_turns(runner: StreamRunner, ways: Sequence[str]) -> dict[str, Any]:
    """Time all ways, one run of each after the other, until each had enough; the first turn is to warm up."""
    sessions = {way: runner.session(way) for way in ways}
    found: dict[str, dict[str, list[float]]] = {way: {"runs": [], "waits": []} for way in ways}
    seen: dict[str, set[tuple[str, ...]]] = {way: set() for way in ways}
    used = 0.0
    turns = 0
    while turns < 2 or (turns <= MOST_RUNS and sum(found[ONE_STREAM]["runs"]) < ENOUGH_MICROSECONDS):
        for way, session in sessions.items():
            before = core_times(runner.waiting)
            outputs, took = runner.run(way, session)
            after = core_times(runner.waiting)
            seen[way].add(tuple(digests(outputs)))
            if turns:
                found[way]["runs"].append(took)
                found[way]["waits"].append(after[1] - before[1])
                used += after[0] - before[0]
        turns += 1
    return {"ways": {way: {**found[way], "digests": sorted(seen[way])} for way in ways}, "used": used}


def _median_run(runs: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the run of median length, its starts counted from the first."""
    ordered = sorted(runs, key=lambda run: max(start + length for _, start, length in run) - run[0][1])
    run = ordered[len(ordered) // 2]
    return [(name, start - run[0][1], length) for name, start, length in run]


def core_times(left_out: int) -> tuple[float, float]:
    """Return microseconds that the threads but one ran so far, and waited for a core; zeros where nobody tells."""
    ran = waited = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        if file.parent.name == str(left_out):
            continue
        try:
            on_core, in_queue, _ = file.read_text().split()
        except OSError:  # the thread has just ended
            continue
        ran, waited = ran + int(on_core), waited + int(in_queue)
    return ran / 1000, waited / 1000


if __name__ == "__main__":
    print(json.dumps(run_streams(**json.load(sys.stdin))))
