"""Whether two versions of schedopt give the same schedules, byte for byte.

    python tests/bench/same_schedules.py write before.json     # with the one version installed, then with the other
    python tests/bench/same_schedules.py write after.json
    python tests/bench/same_schedules.py compare before.json after.json

`write` draws 24 graphs by `schedopt gen`, adds six of examples/graphs, and solves each by every method with a seed and
a budget of evaluations, for both tasks, on one device and on two. Methods that count no evaluations run on small
graphs, and count where they end by themselves in time. A record holds a hash of the steps' JSON, the totals, and the
bound.
"""

import argparse
import hashlib
import json
import tempfile
import time
from pathlib import Path

from typer.testing import CliRunner

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "graphs"
GIVEN = ["layered-50.pbtxt", "watts-strogatz-100.pb.gz", "unet.pb.gz", "nasnet-a-mobile.pb.gz", "ddpm-unet.pb.gz",
         "layered-500.pb.gz"]  # fmt: skip
DRAWN = [
    ("layered", ["--nodes", "16", "--count", "4"]),
    ("layered", ["--nodes", "60", "--count", "6"]),
    ("synthetic", ["--nodes", "12-20", "--count", "6"]),
    ("synthetic", ["--nodes", "50-90", "--count", "8"]),
]
PROBLEMS = {
    "memory-1": ["--task", "memory", "--devices", "1"],
    "memory-2": ["--task", "memory", "--devices", "2"],
    "runtime-2": ["--task", "runtime", "--devices", "2", "--bandwidth", "1GB/s", "--latency", "1us"],
}
VARIANTS = [
    "brkga:decoder=lazy",
    "topoformer:decode=greedy",
    "topoformer:decode=sample",
    "approximate-dp:beam_size=200",
]
FEW_OPS = 17
SECONDS = 10
MOST_OPS_OF_A_LONG_SEARCH = 100
STEP_KEYS = ("op", "device", "tensor", "from", "to")
TOTALS = ("peak_memory", "peak_memory_per_device", "runtime_us", "lower_bound", "status", "evaluations", "found_by")


def schedopt(*arguments):
    """Run a command line in this process, so that kernels are compiled once."""
    from schedopt.cli.main import app

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = schedopt(*arguments)
    assert result.exit_code == 0, (arguments, result.stderr)
    return result.stdout


def make_graphs(folder):
    """Return the paths of 24 drawn graphs and of six given ones."""
    paths = []
    for at, (kind, options) in enumerate(DRAWN):
        target = folder / f"{at}-{kind}"
        succeed("gen", kind, target, "--seed", 3 + at, "--quiet", *options)
        paths += sorted(target.rglob("*.pb*"))
    return paths + [EXAMPLES / name for name in GIVEN]


def methods():
    """Return `(method, counts evaluations)` of every method."""
    listed = json.loads(succeed("methods", "--json"))
    names = [entry["name"] for entry in listed] if isinstance(listed, list) else list(listed)
    endless = {"depth-first-dp", "cp-sat"}
    return [(name, name not in endless) for name in names if name != "approximate-dp"] + [(v, True) for v in VARIANTS]


def record(graph, method, counts, problem, ops):
    """Return what a method gives on a graph, or None where it is not run."""
    budget = ["--evaluations", 2000 if ops <= MOST_OPS_OF_A_LONG_SEARCH else 400]
    if method.startswith("approximate-dp"):
        budget = []
    elif not counts:
        if ops > FEW_OPS:
            return None
        budget = ["--time-limit", SECONDS]
    result = schedopt("solve", graph, "--method", method, "--seed", 5, "--json", "--quiet", *budget, *PROBLEMS[problem])
    if result.exit_code == 2:
        return {"refused": True}
    assert result.exit_code == 0, (graph, method, result.stderr, result.exception)
    document = json.loads(result.stdout)
    if not counts and document["status"] != "optimal":
        return None
    steps = [{key: step[key] for key in STEP_KEYS if key in step} for step in document["steps"]]
    digest = hashlib.sha256(json.dumps(steps).encode()).hexdigest()
    return {"steps": digest, **{key: document[key] for key in TOTALS}}


def write(path):
    found, start = {}, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for graph in make_graphs(Path(folder)):
            digest = hashlib.sha256(graph.read_bytes()).hexdigest()
            ops = json.loads(succeed("show", graph, "--json", "--quiet"))["ops"]
            for method, counts in methods():
                for problem in PROBLEMS:
                    one = record(graph, method, counts, problem, ops)
                    if one is not None:
                        found[f"{graph.name} {digest[:12]} {method} {problem}"] = one
            print(f"{len(found):,} schedules in {time.perf_counter() - start:.0f} s: {graph.name}", flush=True)
            path.write_text(json.dumps(found, indent=0))


def compare(before, after):
    first, second = json.loads(before.read_text()), json.loads(after.read_text())
    differ = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
    solved = sum("steps" in record for record in first.values())
    print(f"{len(first):,} runs before, {len(second):,} after, {solved:,} schedules; {len(differ)} differ")
    for name in differ[:20]:
        print(name, first.get(name), second.get(name), sep="\n  ")
    return 1 if differ else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["write", "compare"])
    parser.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "write":
        write(arguments.files[0])
        return 0
    return compare(*arguments.files)


if __name__ == "__main__":
    raise SystemExit(main())
