"""Real models, imported, scheduled, and run in both orders: what was predicted, and what it really took.

usage: python examples/experiments/real/programs.py [MODEL..., default all of the table below] [--output FILE, default
       real_programs.csv] [--time-limit SECONDS, default 20] [--repeats N, default 3]

For each model of models.py (which says what to install): `schedopt import --costs measured`, `schedopt solve`
and `schedopt measure`, which runs program order and schedule in fresh processes. The CSV gets a row per model, and
models with a row there are not run again. Peaks are in MiB and count what the caller holds all the time (parameters,
buffers, inputs, state of the optimizer); `saved` is the measured reduction of the whole, and of what the order of the
ops can change at all, the rest. A laptop hour: the default takes about half of it.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

SCHEDOPT = os.environ.get("SCHEDOPT", "schedopt")
MODELS = (
    ("pnasnet5large", "none"),
    ("nasnetalarge", "none"),
    ("densenet121", "none"),
    ("hrnet_w18_small", "none"),
    ("efficientnet_b0", "none"),
    ("ddpm_unet", "none"),
    ("stable_diffusion_unet", "none"),
    ("t5_small", "none"),
    ("llama", "none"),
    ("mamba", "none"),
    ("resnet50_training", "sgd"),
    ("regnet_training", "sgd"),
    ("convnext_tiny_training", "sgd"),
    ("swin_tiny_training", "sgd"),
    ("vit_small_training", "adam"),
    ("ddpm_unet_training", "adam"),
    ("gpt2_training", "sgd"),
    ("bert_training", "adam"),
    ("llama_training", "sgd"),
    ("bilstm_training", "sgd"),
)
FIELDS = (
    "model",
    "training",
    "ops",
    "held",
    "program_predicted",
    "program_measured",
    "schedule_predicted",
    "schedule_measured",
    "lower_bound",
    "status",
    "program_us",
    "schedule_us",
    "equal",
)
MIB = 2**20
HEADER = (
    f"{'model':<24} {'':<5} {'ops':>6} {'held':>8} {'program':>8} {'schedule':>8} {'saved':>7} {'of rest':>7} "
    f"{'error':>8} {'s':>7} {'s after':>7}  equal  status"
)


def run(*command):
    """Run a subcommand of schedopt among the models; return the JSON that it prints."""
    done = subprocess.run(
        [SCHEDOPT, *map(str, command)], cwd=Path(__file__).parent, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise SystemExit(f"schedopt {' '.join(map(str, command))} failed")
    return json.loads(done.stdout)


def measure(name, training, seconds, repeats):
    """Import, solve and measure one model; return its row."""
    from schedopt.core.files.costgraph import read_graph

    model = (f"models:{name}", "--training", training)
    with tempfile.TemporaryDirectory() as work:
        path, schedule = Path(work, "graph.pb.gz"), Path(work, "schedule.json")
        run("import", *model, "--costs", "measured", "--json", "--output", path)
        found = run("solve", path, "--time-limit", f"{seconds}s", "--quiet", "--json", "--output", schedule)
        program, scheduled = run("measure", *model, "--schedule", schedule, "--repeats", repeats, "--json")["orders"]
        graph = read_graph(path)
    return {
        "model": name,
        "training": training,
        "ops": graph.num_ops,
        "held": int(graph.persistent.sum()),
        "program_predicted": program["predicted_peak"],
        "program_measured": program["measured_peak"],
        "schedule_predicted": scheduled["predicted_peak"],
        "schedule_measured": scheduled["measured_peak"],
        "lower_bound": found["lower_bound"],
        "status": found["status"],
        "program_us": statistics.median(program["microseconds"]),
        "schedule_us": statistics.median(scheduled["microseconds"]),
        "equal": scheduled["equal"],
    }


def table_line(row):
    """Return a row of the printed table."""
    held, before, after = (int(row[field]) for field in ("held", "program_measured", "schedule_measured"))
    saved, saved_of_rest = 1 - after / before, (before - after) / (before - held)
    errors = (int(row[f"{order}_predicted"]) / int(row[f"{order}_measured"]) - 1 for order in ("program", "schedule"))
    times = " ".join(f"{float(row[f'{order}_us']) / 1e6:>7.2f}" for order in ("program", "schedule"))
    peaks = " ".join(f"{bytes_ / MIB:>8.1f}" for bytes_ in (held, before, after))
    return (
        f"{row['model']:<24} {row['training']:<5} {int(row['ops']):>6,} {peaks} {saved:>7.1%} {saved_of_rest:>7.1%} "
        f"{max(errors, key=abs):>+8.2%} {times}  {row['equal']!s:<5}  {row['status']}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of the table (default: all)")
    parser.add_argument("--output", type=Path, default=Path("real_programs.csv"), metavar="FILE")
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    options = parser.parse_args()
    if unknown := set(options.models) - {name for name, _ in MODELS}:
        parser.error(f"{', '.join(sorted(unknown))}: not among {', '.join(name for name, _ in MODELS)}")
    print(HEADER)
    is_new = not options.output.exists() or not options.output.stat().st_size
    done = {} if is_new else {(row["model"], row["training"]): row for row in csv.DictReader(options.output.open())}
    with options.output.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if is_new:
            writer.writeheader()
        for name, training in MODELS:
            if options.models and name not in options.models:
                continue
            row = done.get((name, training))
            if row is None:
                row = measure(name, training, options.time_limit, options.repeats)
                writer.writerow(row)
                file.flush()
            print(table_line(row), flush=True)


if __name__ == "__main__":
    main()
