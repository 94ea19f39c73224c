"""Plans for two CPU devices, run by ONNX Runtime on two streams: makespan predicted against measured, and speed-up.

usage: python examples/experiments/machines/streams.py [NETWORK...] [--devices N, default 2] [--time-limit SECONDS,
       default 10] [--rounds N, default 5] [--until N, default 0] [--reserve] [--turns N, default 50]
       [--folder FOLDER, default a temporary one]

NETWORK is one of branching.py (by default all six) or an .onnx file. Each is imported with measured costs, solved with
`--task runtime` and the measured hand-over as latency, and run in rounds, each a process of its own in which all ways
take turns. A turn counts as quiet if no way's threads waited for a core in more than 3% of its time: other work on the
machine lets them wait. `--until` goes on until so many turns were quiet, at most 20 times as many rounds. `--reserve`
(Linux, root) reserves a share of a core for each of 16 workers and the caller instead, so that each of `--turns` runs
as on an idle machine while others keep most of it; runs have to take less than 33 ms.

Prints two rows per network, of all turns and of the quiet ones: nodes; ops per stream; makespan as planned, as
predicted by the times of the nodes on one stream, and measured; the error of both; one stream, ONNX Runtime's intra-op
threads and its own ORT_PARALLEL against the plan (above 1: the plan is faster), medians of the turns' ratios; whether
the results are bitwise those of one stream. Needs `pip install 'schedopt[onnx]'`. A minute or two per network on two
idle cores.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from branching import NETWORKS, write

QUIET = 0.03
COLUMNS = ("network", "turns", "nodes", "split", "planned", "predicted", "measured", "error", "error planned")
COLUMNS += ("x one stream", "x intra-op", "x ORT_PARALLEL", "equal")


def plan_of(result, graph):
    """Return the streams of a schedule, without the residents that have a home, which no node runs."""
    from schedopt.core.programs.stream_plans import StreamPlan

    order = [op for op in result.schedule.op_order().tolist() if op < graph.num_ops]
    placement = result.schedule.placement(result.problem.graph)[: graph.num_ops]
    return StreamPlan(tuple(order), tuple(placement.tolist()), result.runtime)


def measured_turns(path, arguments):
    """Import, plan and run one network; return its graph, its plan and the turns, as runs and waits of each way."""
    from schedopt.core.problem.problem import Problem
    from schedopt.core.programs.fresh_process import ask
    from schedopt.core.programs.onnx.costs import measured_costs
    from schedopt.core.programs.onnx.importer import graph_of
    from schedopt.core.programs.onnx.loading import load_program
    from schedopt.core.programs.onnx.stream_measure import measure_streams
    from schedopt.core.solve.solve import solve

    program = load_program(str(path), {}, note)
    graph = graph_of(program, measured=measured_costs(program))
    latency = ask("onnx.hand_over", {}, about=str(path))
    problem = Problem(graph, "runtime", devices=arguments.devices, latency=latency)
    result = solve(problem, time_limit=arguments.time_limit)
    plan = plan_of(result, graph)
    reports, turns = [], []
    while len(reports) < (20 if arguments.until else 1) and (
        not reports or sum(map(is_quiet, turns)) < arguments.until
    ):
        reports.append(measure_streams(program, graph, {"plan": plan}, arguments.rounds, note))
        rows = reports[-1].rows
        columns = [zip(sum(row.runs, ()), sum(row.waits, ()), strict=True) for row in rows]
        turns += zip(*columns, strict=True)
    return graph, plan, reports, turns


def reserved_turns(path, arguments):
    """Do what `measured_turns` does with shares of the cores reserved, and times by ONNX Runtime's profile."""
    from reserved import release, reserve, spans_in_turns
    from schedopt.core.problem.problem import Problem
    from schedopt.core.programs.fresh_process import ask
    from schedopt.core.programs.onnx import streams
    from schedopt.core.programs.onnx.costs import run_each
    from schedopt.core.programs.onnx.importer import graph_of
    from schedopt.core.programs.onnx.loading import load_program
    from schedopt.core.programs.onnx.run import digests
    from schedopt.core.programs.onnx.stream_run import ONE_STREAM, OWN_WAYS, StreamRunner, node_times
    from schedopt.core.programs.stream_plans import predict
    from schedopt.core.programs.stream_report import StreamReport, StreamRow
    from schedopt.core.solve.solve import solve

    program = load_program(str(path), {}, note)
    reserve(runtime=0.08, period=0.1)
    costs = run_each(str(path), {})
    release()
    graph = graph_of(program, measured=costs)
    hand_over = ask("onnx.hand_over", {}, about=str(path))
    problem = Problem(graph, "runtime", devices=arguments.devices, latency=hand_over)
    result = solve(problem, time_limit=arguments.time_limit)
    plan = plan_of(result, graph)
    streams.WORKERS_PER_STREAM = 16 // arguments.devices  # of which each has a share of 0.1
    with tempfile.TemporaryDirectory() as folder:
        asked = [(program.names[op], plan.stream_of[op]) for op in plan.order]
        runner = StreamRunner(program, {"plan": asked}, Path(folder))
        results = [digests(runner.run(way, runner.session(way))[0]) for way in (ONE_STREAM, "plan")]
        runs = spans_in_turns(runner, (*OWN_WAYS, "plan"), arguments.turns, 0.033)
    times = node_times(runs[ONE_STREAM])
    foreseen = predict(graph, plan, [times[name] for name in program.names], hand_over)
    lengths = [[(max(s + d for _, s, d in run) - run[0][1], 0.0) for run in way] for way in runs.values()]
    row = StreamRow("plan", (), (), (), results[0] == results[1], plan, foreseen.makespan)
    return graph, plan, [StreamReport(graph, (row,), hand_over, 0.0, os.cpu_count())], list(zip(*lengths, strict=True))


def is_quiet(turn):
    """Whether no way's threads waited for a core for long."""
    return all(waited <= QUIET * took for took, waited in turn)


def rows_of(name, graph, plan, reports, turns):
    """Yield the rows of a network: all turns, and the quiet ones if there are some."""
    predicted = statistics.median(report.rows[-1].predicted for report in reports)
    is_equal = all(report.rows[-1].is_equal for report in reports)
    for label, chosen in ((name, turns), ("  quiet", [turn for turn in turns if is_quiet(turn)])):
        if not chosen or (label != name and len(chosen) == len(turns)):
            continue
        measured = statistics.median(turn[-1][0] for turn in chosen)
        against = [statistics.median(turn[way][0] / turn[-1][0] for turn in chosen) for way in range(3)]
        yield (
            label,
            f"{len(chosen):,}",
            f"{graph.num_ops:,}",
            "+".join(str(len(stream)) for stream in plan.streams),
            *(f"{value / 1000:.2f} ms" for value in (plan.planned, predicted, measured)),
            *(f"{100 * (value / measured - 1):+.1f}%" for value in (predicted, plan.planned)),
            *(f"{value:.2f}" for value in against),
            "yes" if is_equal else "NO",
        )


def note(text):
    print(text, file=sys.stderr)


def show(row):
    print(
        f"{row[0]:<12}" + "".join(f"{cell:>11}" for cell in row[1:8]), *(f"{cell:>14}" for cell in row[8:]), flush=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--reserve", action="store_true")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        show(COLUMNS)
        for name in arguments.networks:
            path = write(name, folder) if name in NETWORKS else Path(name)
            measure = reserved_turns if arguments.reserve else measured_turns
            graph, plan, reports, turns = measure(path, arguments)
            for row in rows_of(path.stem, graph, plan, reports, turns):
                show(row)
            waited = statistics.median(report.waited for report in reports)
            hand_over = statistics.median(report.hand_over for report in reports)
            load = os.getloadavg()[0]
            note(f"{path.stem}: hand-over {hand_over:.1f} us, waited {100 * waited:.0f}% of the time, load {load:.1f}")


if __name__ == "__main__":
    main()
