"""Time and memory of Topoformer's inference on layered graphs, beside approximate DP in the same run.

usage: python examples/experiments/topoformer/inference_time.py [OPS..., default 500 1000 2000 10000]
       [--runs N, default 3] [--seed N] [--beam-size K of approximate DP, default 10000]
       [--largest OPS that approximate DP gets, default 2000]

Each run is one `schedopt solve` of a graph of its own: the median of the seconds that it reports (from the graph
loaded to the best order, network and decoder) and the largest resident memory of the process, Python and torch
included. The paper: greedy 0.6, 1.2 and 2.4 s at 500, 1000 and 2000 ops, sample 0.7, 1.4 and 2.9, beam 2.7, 5.9 and
14.7 on a V100; approximate DP with K = 100,000 265, 1561 and 8829 s. A laptop hour: the default takes minutes.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median

SCHEDOPT = os.environ.get("SCHEDOPT", "schedopt")
DECODERS = ("greedy", "sample", "beam")


def run_measured(graph, *options):
    """Solve; returns the seconds that the command reports, and its peak resident memory in GiB."""
    with tempfile.TemporaryDirectory() as work:
        output = Path(work, "schedule.json")
        command = [SCHEDOPT, "solve", graph, *options, "--quiet", "--output", output]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed")
        return json.loads(output.read_text())["seconds"], usage.ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", type=int, default=[500, 1000, 2000, 10_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beam-size", type=int, default=10_000)
    parser.add_argument("--largest", type=int, default=2000)
    options = parser.parse_args()
    print(f"{'ops':>7} {'greedy':>9} {'sample':>9} {'beam':>9} {'GiB':>6} {'approximate DP':>15} {'times greedy':>13}")
    for ops in options.ops:
        seconds, memory = {name: [] for name in (*DECODERS, "dp")}, []
        for run in range(options.runs):
            with tempfile.TemporaryDirectory() as work:
                graph = Path(work, "graph.pb")
                generate = ["gen", "layered", "--nodes", str(ops), "--seed", str(options.seed + run), "--quiet", graph]
                subprocess.run([SCHEDOPT, *generate], check=True)
                for name in DECODERS:
                    took, resident = run_measured(graph, "--method", "topoformer:passes=0", "--decode", name)
                    seconds[name].append(took)
                    memory.append(resident)
                if ops <= options.largest:
                    method = f"approximate-dp:beam-size={options.beam_size}"
                    seconds["dp"].append(run_measured(graph, "--method", method)[0])
        medians = {name: median(values) for name, values in seconds.items() if values}
        row = f"{ops:>7,} " + " ".join(f"{medians[name]:>7.2f} s" for name in DECODERS) + f" {max(memory):>6.2f}"
        if "dp" in medians:
            row += f" {medians['dp']:>13.1f} s {medians['dp'] / medians['greedy']:>13.1f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
