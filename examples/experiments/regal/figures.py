"""REGAL's figures: each subcommand draws one as a PNG, and prints its numbers.

usage: python examples/experiments/regal/figures.py FIGURE ... [--output FILE, default regal_FIGURE.png]

  histogram RUNS.csv...         figure 2: improvements of one method over another, graph by graph, a panel per file
  sweep RUNS.csv...             figure 3: improvement over BRKGA 5K against the evaluations, a panel per file
  entropy GRAPHS...             figure 4a: entropy of the placement actions, over graphs
  rounds RUN...                 figure 4b: best validation against the rounds of message passing T
  curves RUN...                 figure 8: reward of the training batches over steps; with --graphs N the gap of the
                                improvement from N graphs trained on to N unseen ones
  actions GRAPHS...             figure 11: how often each action is chosen, and for ops of how much memory
  topologies RUNS.csv...        figure 12: box plot of the rewards by topology, a panel per file

RUNS.csv is what `schedopt compare --output` writes, as table1.sh (figure 2), generalise.sh (figure 3) and topologies.sh
(figure 12) in this folder do; RUN is a folder of `schedopt train regal` or `train gas`, as ablation.sh makes them.
`python examples/experiments/regal/figures.py FIGURE --help` has the options and the paper's numbers. A laptop hour is
for the runs: drawing takes seconds, and `entropy`, `actions` and `curves --graphs` a second or less per graph.
"""

import argparse

from figures_of_networks import actions, entropy
from figures_of_runs import histogram, sweep, topologies
from figures_of_training import curves, rounds


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = parser.add_subparsers(required=True, metavar="FIGURE")

    def add(figure, inputs, metavar):
        one = figures.add_parser(
            figure.__name__, description=figure.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        one.add_argument(inputs, nargs="+", metavar=metavar)
        one.add_argument("--output", default=f"regal_{figure.__name__}.png", metavar="FILE")
        one.set_defaults(figure=figure)
        return one

    for figure in (histogram, sweep, topologies):
        one = add(figure, "runs", "RUNS.csv")
        one.add_argument(
            "--reference", default="", help="the method that others are against (default: the first brkga)"
        )
        if figure is not sweep:
            one.add_argument("--method", default="", help="the method that is drawn (default: the first regal)")
        if figure is histogram:
            one.add_argument("--bins", type=int, default=40)
        if figure is topologies:
            one.add_argument("--graphs", nargs="+", metavar="GRAPHS", help="the graphs, if their names do not tell")
    for figure in (entropy, actions):
        one = add(figure, "graphs", "GRAPHS")
        one.add_argument("--weights", default="regal-runtime", help="shipped ones by name, or a file")
        one.add_argument("--actions", choices=("expected", "most-likely", "sample"), default="sample")
        one.add_argument("--features", type=int, default=400, help="evaluations that features come from")
        one.add_argument("--seed", type=int, default=1000)
        if figure is entropy:
            one.add_argument("--bins", type=int, default=20)
    one = add(rounds, "runs", "RUN")
    one.add_argument("--measure", default="sample_improvement_percent", help="of curve.jsonl")
    one = add(curves, "runs", "RUN")
    one.add_argument("--graphs", type=int, default=0, metavar="N", help="to measure the gap on")
    one.add_argument("--training", nargs="+", metavar="GRAPHS", help="graphs of the training, if they were given")
    one.add_argument("--held-out", nargs="+", metavar="GRAPHS", help="graphs that it did not have")
    one.add_argument("--seed", type=int, default=1000)
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    options.figure(options).savefig(options.output, dpi=150)


if __name__ == "__main__":
    main()
