"""How soon commands on a cluster end after Ctrl-C, on this machine.

    python tests/bench/cluster_interrupts.py [dask] [ray] [--times 3] [--after 15]

Starts a head and two workers on the loopback, runs each command until it is in the middle of its work, and interrupts
it as a terminal does. Per line: the seconds to its end, its own processor time of these, its exit code, and its last
line. The networks are tiny, so that a step of theirs is short.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from models.clusters import cluster, environment_of
from models.train_commands import COMMANDS

SCHEDOPT = [sys.executable, "-m", "schedopt"]
ENDLESS = {"topoformer": "phases.0.epochs=100000", "regal": "phases.1.epochs=100000"}


def commands(folder):
    """Return each command's words, without an output, by its name."""
    graphs = folder / "graphs"
    subprocess.run(
        [*SCHEDOPT, "gen", "layered", graphs, "--nodes", "300", "--count", "8", "--quiet"],
        check=True,
        env=environment_of(),
    )
    paid = ["--task", "runtime", "--devices", "2", "--bandwidth", "1"]
    words = {
        "compare": ["compare", graphs, *paid, "--methods", "annealing,brkga", "--time-limit", "60"],
        "gen": ["gen", "synthetic", folder / "many", "--nodes", "300", "--count", "20000", "--overwrite"],
        "pareto": ["pareto", sorted(graphs.glob("*.pb.gz"))[0], "--points", "5", "--time-limit", "60"],
        "train brkga": ["train", "brkga", graphs, "--devices", "2", "--evaluations", "1000000"],
    }
    for network, endless in ENDLESS.items():
        config = folder / f"{network}.yaml"
        config.write_text(COMMANDS[network].config)
        words[f"train {network}"] = ["train", network, "--config", config, "--set", endless]
    return words


def processor_time(process):
    """Return the seconds of processor time of a process that runs."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupt(words, after, folder):
    """Run a command, interrupt it after some seconds, and return what is said of it."""
    environment = environment_of()
    process = subprocess.Popen(
        [*SCHEDOPT, *map(str, words)],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(after)
    if process.poll() is not None:
        return f"ended before it was interrupted, exit {process.returncode}: {process.communicate()[1][-300:]}"
    before = last = processor_time(process)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    while process.poll() is None:
        last = max(last, processor_time(process))
        time.sleep(0.01)
    seconds = time.monotonic() - start
    said = process.communicate()[1].strip().splitlines() or [""]
    return f"{seconds:.2f} s, {last - before:.2f} s of processor time, exit {process.returncode}: {said[-1]}"


def main():
    """Interrupt every command on every engine that is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=["dask", "ray"])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--after", type=float, default=15.0, help="seconds until Ctrl-C")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it, and so its own
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = commands(folder)
        for kind in options.kinds:
            with cluster(kind, folder) as running:
                for command, given in words.items():
                    for _ in range(options.times):
                        told = interrupt([*given, *running.options(kind)], options.after, folder)
                        print(f"{kind} {command}: {told}", flush=True)


if __name__ == "__main__":
    main()
