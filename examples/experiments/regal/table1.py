"""REGAL table 1 as a table in Markdown, of the runs that table1.sh keeps, with a teacher's choices as one more row.

    python examples/experiments/regal/table1.py runtime|memory FOLDER [--seeds 3]

FOLDER has the graphs, TASK.csv, TASK-budgets.csv and TASK-cp-sat.csv. A teacher (policies/regal/teachers.py) is the
rule that the shipped network imitated: BRKGA with its choices, in the levels and evaluations of `regal`. Its runs are
kept as TASK-teacher.csv. Best known is the least value of all runs on a graph. A second table compares all rows on
the graphs of CP-SAT. Intervals are of 95% over graphs; the deviation, in points, is that of the mean improvement over
seeds.
"""

import argparse
import csv
import time
from dataclasses import asdict, fields
from pathlib import Path

from figures_of_runs import BRKGA

TEACHERS = {"runtime": "cut-and-time-64", "memory": "cut-and-order-64"}
SEED, EVALUATIONS, LEVELS = 1000, 5000, {"placement": 4, "scheduling": 16}
# Improvement over BRKGA 5K and gap from the best known, percent: synthetic graphs, and the peak of TensorFlow's graphs
PAPER = {
    "cp-sat": {"runtime": (19.50, 0.00), "memory": (-1.48, 8.06)},
    "gp-dfs": {"runtime": (-55.8, 93.66), "memory": (-6.51, 14.77)},
    "local-search": {"runtime": (0.08, 24.60), "memory": (0.63, 7.24)},
    "brkga": {"runtime": (0.00, 24.63), "memory": (0.00, 7.98)},
    "brkga-tuned": {"runtime": (3.11, 20.76), "memory": (0.80, 7.11)},
    "gas": {"runtime": (0.80, 23.48), "memory": (0.16, 7.67)},
    "idrs": {"runtime": (-12.12, 39.72), "memory": (-3.16, 12.39)},
    "regal": {"runtime": (4.81, 18.57), "memory": (3.56, 4.44)},
}


def read_cells(path):
    """Return the runs of a file of `schedopt compare --output`."""
    from schedopt.core.report.summaries import Cell

    def number(text):
        return float(text) if text else None

    with path.open(newline="") as file:
        return [
            Cell(
                *(row["graph"], row["sha256"], int(row["ops"]), row["method"], int(row["seed"]), row["status"]),
                **{name: number(row[name]) for name in ("value", "excess", "lower_bound", "seconds", "cpu_seconds")},
            )
            for row in csv.DictReader(file)
        ]


def taught(graph, name, task, seed):
    """Return the run of a teacher's choices on a graph, in the evaluations that `regal` has."""
    from schedopt.core.report.summaries import Cell
    from schedopt.policies.regal.actions import ActionParameters
    from schedopt.policies.regal.features import EVALUATIONS as SEEN
    from schedopt.policies.regal.rewards import Setting, found_value, given_graphs, make_case

    levels, start = ActionParameters(**LEVELS), (time.perf_counter(), time.process_time())
    case = make_case(given_graphs([graph]).maker(0), Setting(task, 2, levels, SEEN), seed, None, TEACHERS[task])
    value = min(found_value(case.start, case.target, levels, EVALUATIONS - SEEN), case.searched.value)
    times = {"seconds": time.perf_counter() - start[0], "cpu_seconds": time.process_time() - start[1]}
    method = f"teacher:{TEACHERS[task]}"
    return Cell(
        name, "", graph.num_ops, method, seed, "feasible", value, excess=0.0, lower_bound=case.start.bound, **times
    )


def teacher_cells(task, folder, seeds):
    """Return the runs of the teacher; the folder keeps them."""
    from schedopt.core.files.costgraph import find_graphs, graph_name, read_graph
    from schedopt.core.report.summaries import Cell

    path = folder / f"{task}-teacher.csv"
    cells = read_cells(path) if path.exists() else []
    kept = {(cell.graph, cell.seed) for cell in cells}
    graphs = {graph_name(file): read_graph(file) for file in find_graphs([folder / "graphs"])}
    left = [(name, SEED + at) for name in graphs for at in range(seeds) if (name, SEED + at) not in kept]
    if left:
        taught(graphs[left[0][0]], "", task, SEED)  # compiles
        cells += [taught(graphs[name], name, task, seed) for name, seed in left]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Cell)])
        writer.writeheader()
        writer.writerows(map(asdict, cells))
    return cells


def markdown(cells, task):
    """Yield the lines of a table, its rows from the best to the worst."""
    from schedopt.core.report.summaries import summarise

    rows = [one for one in summarise(cells, list(dict.fromkeys(cell.method for cell in cells)), BRKGA) if one.runs]
    graphs = max(one.graphs for one in rows)
    titles = ("improvement", "over seeds", "from best known", "no worse", "worst", "CPU")
    yield "| | improvement (paper) | over seeds | from best known (paper) | no worse | worst | CPU |"
    yield "|---" * (len(titles) + 1) + "|"
    for one in sorted(rows, key=lambda one: -one.improvement.mean):
        paper = PAPER.get(one.method.partition(":")[0] if one.method.startswith("cp-sat") else one.method, {}).get(task)
        improved, gap = ("", "") if paper is None else (f" ({paper[0]:+.1f}%)", f" ({paper[1]:.1f}%)")
        name = f"`{one.method}`" + f", on {one.graphs}" * (one.graphs < graphs)
        compared = one.wins + one.ties + one.losses
        plain = one.method == BRKGA
        yield " | ".join(
            (
                f"| {name}",
                ("0" if plain else f"{one.improvement.mean:+.1f} ± {one.improvement.half_width or 0:.1f}%") + improved,
                "" if one.seed_deviation is None or plain else f"{one.seed_deviation:.2f}",
                f"{one.gap_from_best.mean:.1f}%{gap}",
                "" if plain else f"{100 * (one.wins + one.ties) / compared:.1f}%",
                "" if plain else f"{one.least_improvement:+.1f}%",
                f"{one.cpu_seconds.mean:.2f} s |",
            )
        )


def main():
    """Print the tables of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tuple(TEACHERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    cells = read_cells(options.folder / f"{options.task}.csv")
    cells += [c for c in read_cells(options.folder / f"{options.task}-budgets.csv") if c.method != BRKGA]
    cells += teacher_cells(options.task, options.folder, options.seeds)
    exact = options.folder / f"{options.task}-cp-sat.csv"
    solved = read_cells(exact) if exact.exists() else []
    print(*markdown(cells + solved, options.task), sep="\n")
    few = {cell.graph for cell in solved}
    if few:
        print(f"\nthe graphs of cp-sat ({len(few)}):\n")
        print(*markdown([cell for cell in cells + solved if cell.graph in few], options.task), sep="\n")


if __name__ == "__main__":
    main()
