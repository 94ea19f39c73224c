"""How much room there is above a reference, what each method takes of it, and the graphs that have some.

    schedopt compare GRAPHS --methods brkga,regal,auto:evaluations=5000 ... --output runs.csv
    python examples/experiments/regal/room.py runs.csv [--reference brkga] [--least 1] [--graphs GRAPHS --copy FOLDER]

The room of a graph is how far the best value that any method of the files found, mean over seeds, lies below the
reference's, in percent. Intervals are of 95%, over graphs. With --copy the graphs that have --least percent of room are
copied from the folder GRAPHS, with their noisy copies (`schedopt gen augment`): others teach nothing.
"""

import argparse
import shutil
from pathlib import Path

from figures_of_runs import BRKGA, pick, read_runs, with_error


def rooms_of(values, reference):
    """Return graph -> room in percent, of the graphs whose reference is above 0."""
    best = {graph: min(of[graph] for of in values.values() if graph in of) for graph in values[reference]}
    return {graph: 100 * (1 - best[graph] / value) for graph, value in values[reference].items() if value > 0}


def print_row(values, rooms, method, reference):
    """Print what a method improves on these graphs, and which part of their room that is."""
    pairs = {graph: (values[method][graph], values[reference][graph]) for graph in rooms if graph in values[method]}
    if not pairs:
        return
    improved = [100 * (1 - value / before) for value, before in pairs.values()]
    room = sum(rooms[graph] for graph in pairs)
    taken = f"{100 * sum(improved) / room:.0f}% of the room" if room else "no room"
    no_worse = sum(improvement >= -1e-9 for improvement in improved)
    print(f"  {method}: {with_error(improved)}, {taken}, no worse on {no_worse} of {len(improved)}")


def copy_graphs(kept, source, target):
    """Copy graphs and their noisy copies."""
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.glob("*.pb*")):
        name = file.name.partition(".pb")[0].partition("-copy-")[0]
        if name in kept:
            shutil.copyfile(file, target / file.name)


def main():
    """Print the tables of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--reference", default=BRKGA)
    parser.add_argument("--least", type=float, default=1.0, help="percent of room that a graph has to have")
    parser.add_argument("--graphs", type=Path, help="folder to copy graphs from")
    parser.add_argument("--copy", type=Path, help="folder to copy graphs to")
    options = parser.parse_args()
    for path in options.runs:
        values = read_runs(path)
        reference = pick(values, options.reference, BRKGA, path)
        rooms = rooms_of(values, reference)
        kept = {graph: room for graph, room in rooms.items() if room >= options.least}
        for what, graphs in (("all graphs", rooms), (f"graphs with {options.least:g}% of room", kept)):
            room = with_error(list(graphs.values())) if graphs else "none"
            print(f"{path.name}, {what}: {len(graphs)}, room above {reference} {room}")
            for method in values:
                if method != reference:
                    print_row(values, graphs, method, reference)
        if options.copy and options.graphs:
            copy_graphs(kept, options.graphs, options.copy)


if __name__ == "__main__":
    main()
