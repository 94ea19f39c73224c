"""Whether two versions of schedopt behave alike: schedules, values, bounds and notes.

    python tests/bench/same_schedules.py write before.json --jobs 2     # PYTHONPATH is the parent of one checkout
    python tests/bench/same_schedules.py write after.json --jobs 2      # then the parent of the other
    python tests/bench/same_schedules.py compare before.json after.json
    python tests/bench/same_schedules.py sample before.json tests/bench/same_schedules_sample.json

A cell is a graph, a kind of problem, a method, a seed and a budget of evaluations. `write` draws about 4,000 cells over
60 graphs and solves them through the command line, in this process; `--fast` takes 400 of them, `--sample N` any N,
`--only plain` leaves out learned methods, whose floats depend on the machine, and `--part K/N` every Nth cell. A run
that was cut off goes on where it was, unless the package has changed. `compare` counts per kind of problem the cells
that are identical, better, worse, or of the same value but different otherwise; it exits 1 if any differs.
"""

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import random
import re
import struct
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import yaml

os.environ.update(COLUMNS="100", TERM="dumb", NO_COLOR="1")
for threads in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEED = 7


class Graph(NamedTuple):
    """A graph of the corpus: its name, file, ops, and what it is fit for."""

    name: str
    path: Path
    ops: int
    tags: frozenset[str]


class Cell(NamedTuple):
    """One run."""

    kind: str
    graph: str
    method: str
    seed: int
    evaluations: int

    def __str__(self):
        return f"{self.kind} / {self.graph} / {self.method} / {self.seed} / {self.evaluations}"


CORPUS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
SMALL_LINK = ["--bandwidth", "1MB/s", "--latency", "5us"]
LINK = ["--bandwidth", "10GB/s", "--latency", "5us"]
SHARES = {"LIMIT": ("60%", "75%", "90%"), "LOOSE": ("80%", "92%", "98%")}


class Kind(NamedTuple):
    """A kind of problem: its options, which graphs it is for, and which methods."""

    options: list[str]
    tags: set[str]
    methods: str


KINDS = {
    name: Kind(options.split(), set(tags.split()), methods)
    for name, (options, tags, methods) in CORPUS["kinds"].items()
}
METHODS = CORPUS["methods"]
LEARNED = {"regal", "gas", "idrs", "direct", "topoformer"}
TIMED = {"depth-first-dp", "cp-sat"}
UNBUDGETED = {*TIMED, "approximate-dp"}
SECONDS = 20
FEW_OPS = 12
STEP_KEYS = ("op", "device", "tensor", "from", "to")


def draw_node(names, at, rng, is_last):
    """Return one random op: inputs, views, waits, workspace, persistent bytes, final outputs, a device."""
    made = [(op, port) for op, node in enumerate(names) for port in range(len(node["outputs"]))]
    reads = [made[int(rng.random() * len(made))] for _ in range(int(rng.random() * 3.5))] if made else []
    outputs = [int(rng.random() * 200) for _ in range(1 if is_last else int(0.3 + rng.random() * 2.2))]
    views = [int(rng.random() * len(reads)) if reads and rng.random() < 0.2 else -1 for _ in outputs]
    waits = sorted({int(rng.random() * at) for _ in range(2) if at and rng.random() < 0.15})
    return {
        "name": f"op{at}",
        "reads": reads,
        "outputs": outputs,
        "views": views,
        "waits": waits,
        "runtime": 0 if rng.random() < 0.15 else int(1 + rng.random() * 99),
        "workspace": int(rng.random() * 150) if rng.random() < 0.3 else 0,
        "persistent": int(rng.random() * 60) if rng.random() < 0.2 else 0,
        "final": rng.random() < 0.08,
        "device": ("", "", "gpu0", "cpu0")[int(rng.random() * 4)],
    }


def draw_mixed(seed, ops, weights):
    """Return ops with everything that the format knows, and residents that several of them read or write."""
    rng, nodes, residents = random.Random(f"mixed {seed}"), [], []
    for at in range(ops):
        nodes.append(draw_node(nodes, at, rng, at == ops - 1))
    for number in range(weights):
        readers = sorted({int(rng.random() * (ops - 1)) for _ in range(1 + int(rng.random() * 3))})
        writers = [ops - 1] if rng.random() < 0.2 else []
        residents.append(hold(nodes, f"w{number}", "parameter", int(20 + rng.random() * 300), readers, writers))
    return nodes, residents


def hold(nodes, name, role, size, readers, writers):
    """Add a resident's bytes to the first op that reads it, and return it as a remark."""
    nodes[readers[0]]["persistent"] += size
    return [name, role, size, readers[0], readers, writers]


def draw_training(seed, layers, transfers_cost):
    """Return the ops of a training step in megabytes: forward, backward that reads what forward made, update."""
    rng, nodes, residents = random.Random(f"training {seed}"), [], []

    def add(name, reads, size, runtime, phase):
        made = {"outputs": [size] if size else [], "views": [-1] * bool(size)}
        costs = {"runtime": runtime, "workspace": size // 2, "persistent": 0}
        named = {"name": name, "phase": phase, "device": ""}
        nodes.append({**named, "reads": reads, **made, "waits": [], **costs, "final": False})
        return len(nodes) - 1

    sizes = [int((1 + rng.random() * 30) * 1e6) for _ in range(layers + 1)]
    times = [int(50 + rng.random() * 900) for _ in range(layers)]
    forward = [add("input", [], sizes[0], 10, "forward")]
    for at in range(layers):
        reads = [(forward[-1], 0), *([(forward[-3], 0)] if at > 2 and rng.random() < 0.3 else [])]
        forward.append(add(f"layer{at}", reads, sizes[at + 1], times[at], "forward"))
    gradient = add("loss", [(forward[-1], 0)], sizes[-1], 20, "backward")
    updates, backward = [], []
    for at in reversed(range(layers)):
        weight = add(f"weight_gradient{at}", [(gradient, 0), (forward[at], 0)], sizes[at] // 3, times[at], "backward")
        gradient = add(f"gradient{at}", [(gradient, 0), (forward[at + 1], 0)], sizes[at], times[at], "backward")
        updates.append(add(f"update{at}", [(weight, 0)], 0, 30, "update"))
        backward.append(gradient)
    for at in range(layers):
        if transfers_cost and at == layers - 1:
            continue  # the last layer has the weights of the first
        place = layers - 1 - at
        readers, writers = [forward[at + 1], backward[place]], [updates[place]]
        if transfers_cost and at == 0:
            readers, writers = sorted([*readers, forward[-1], backward[0]]), sorted([*writers, updates[0]])
        residents.append(hold(nodes, f"w{at}", "parameter", sizes[at] // 3, readers, writers))
        if rng.random() < 0.5 and len(writers) == 1:
            residents.append(hold(nodes, f"moment{at}", "state", sizes[at] // 3, writers, writers))
    for update, place in zip(updates, range(layers), strict=True):
        nodes[update]["waits"] = sorted({backward[place], forward[layers - place]})
    if transfers_cost:
        nodes[updates[-1]]["waits"] = sorted({*nodes[updates[-1]]["waits"], updates[0], forward[-1]})
    return nodes, residents


def as_text(nodes, residents):
    """Return a CostGraphDef as text, as docs/concepts/formats.md has it."""
    lines = []
    for at, node in enumerate(nodes):
        lines += ["node {", f'  name: "{node["name"]}"', f'  device: "{node["device"]}"', f"  id: {at}"]
        lines += [f"  input_info {{ preceding_node: {op} preceding_port: {port} }}" for op, port in node["reads"]]
        outputs = zip(node["outputs"], node["views"], strict=True)
        lines += [f"  output_info {{ size: {size} alias_input_port: {view} }}" for size, view in outputs]
        lines += [f"  control_input: {op}" for op in node["waits"]]
        lines += [f"  compute_cost: {node['runtime']}", f"  temporary_memory_size: {node['workspace']}"]
        lines += [f"  persistent_memory_size: {node['persistent']}"]
        lines += ["  is_final: true"] * node["final"] + ["}"]
    names = [node["name"] for node in nodes]
    remarks = {"version": 1, "ops": hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]}
    phases = [node.get("phase", "") for node in nodes]
    if any(phases):
        texts = list(dict.fromkeys(phases))
        remarks["phases"] = {"texts": texts, "ops": [texts.index(phase) for phase in phases]}
    if residents:
        persistent = struct.pack(f"<{len(nodes)}q", *(node["persistent"] for node in nodes))
        remarks["residents"] = {"persistent": hashlib.sha256(persistent).hexdigest()[:16], "tensors": residents}
    if len(remarks) > 2:
        text = json.dumps("schedopt/graph " + json.dumps(remarks, separators=(",", ":")))
        lines += ["cost {", f"  dimension: {text}", "}"]
    return "\n".join(lines) + "\n"


def make_graphs(folder):
    """Write all graphs, op times and machine files to a folder, and return the graphs."""
    for at, (name, words) in enumerate(CORPUS["drawn"].items()):
        generator, *options = words.split()
        target = folder / name
        if not target.exists():
            succeed("gen", generator, target, "--seed", str(30 + at), "--quiet", "--format", "pb", *options)
    made = []
    for name, words in CORPUS["drawn"].items():
        tags = {"timed", "bytes"} if words.startswith("synthetic") else set()
        found = sorted(path for path in (folder / name).rglob("*.pb*") if path.is_file())
        made += [(f"{name}-{at}", path, tags) for at, path in enumerate(found)]
    for seed in range(10):
        ops, path = (7, 9, 11, 14, 17, 20, 24, 28, 34, 45)[seed], folder / f"mixed-{seed}.pbtxt"
        nodes, residents = draw_mixed(seed, ops, weights=(seed % 3) * 2)
        path.write_text(as_text(nodes, residents))
        rows = [f"op{at},{1 + at % 7},{2 + at % 5 if at % 6 else ''}" for at in range(ops)]
        path.with_suffix(".csv").write_text("\n".join(["op,fast,slow", *rows]) + "\n")
        made.append((path.stem, path, {"bytes", "mixed", "timed"} | ({"homes"} if residents else set())))
    for seed, layers in enumerate((2, 3, 4, 6, 8, 12)):
        path = folder / f"training-{layers}.pbtxt"
        path.write_text(as_text(*draw_training(seed, layers, seed % 2 == 1)))
        made.append((path.stem, path, {"timed", "homes"}))
    path = folder / "unet-training.pb"
    succeed("gen", "architecture", "unet", path, "--training", "--quiet")
    made.append((path.stem, path, {"timed"}))
    made += [
        (name.partition(".")[0], EXAMPLES / "graphs" / name, set(t.split())) for name, t in CORPUS["shipped"].items()
    ]
    for name, text in CORPUS["machines"].items():
        for size, (_, bandwidth, _, latency) in (("small", SMALL_LINK), ("large", LINK)):
            link = f"{{bandwidth: {bandwidth}, latency: {latency}}}"
            (folder / f"{name}-{size}.yaml").write_text(text.replace("{BANDWIDTH}", link))
    ops = {name: json.loads(succeed("show", path, "--json", "--quiet"))["ops"] for name, path, _ in made}
    for name, _, tags in made:
        tags |= {"few"} if ops[name] <= 40 else set()
        tags |= {"unshared"} if "homes" not in tags else set()
    return {name: Graph(name, path, ops[name], frozenset(tags)) for name, path, tags in made}


def is_learned(method):
    return method.partition(":")[0] in LEARNED


def is_exact(method):
    return method.partition(":")[0] in TIMED


def methods_of(kind):
    """Return `(method, number of cells)` of a kind of problem."""
    options, tags, named = KINDS[kind]
    few = 1 if kind.startswith("python") else 2
    yield from ((method, few) for method in METHODS["exact"][named])
    if named == "repeating":
        yield from ((method, 8 * few) for method in METHODS["alone"][named])
        return
    if named == "ordering":
        yield from ((method, 5 * few) for method in METHODS["alone"][named])
        yield from ((method, 2 * few) for method in METHODS["readers"])
    else:
        yield from ((method, few) for method in METHODS["partitions"])
        yield from ((method, 1) for method in METHODS["networks"])
    yield from ((method, few) for method in METHODS["builders"])
    is_equal = "--machine" not in options and "homes" not in tags
    yield from ((m, 1 if m.startswith("step-search") and not is_equal else 2 * few + 1) for m in METHODS["searches"])


def draw_cells(graphs):
    """Return all cells: those of small graphs, then some of big ones."""
    cells = {}
    for kind, (_, tags, _) in KINDS.items():
        fit = [g for g in graphs.values() if tags <= g.tags]
        small, big = [g for g in fit if "big" not in g.tags], [g for g in fit if "big" in g.tags]
        model = kind.removeprefix("equal ") if kind.startswith("equal ") else kind
        for method, count in methods_of(kind):
            rng = random.Random(f"{SEED} {model} {method}")
            able = [g for g in small if g.ops <= FEW_OPS] if is_exact(method) else small
            for graph in sorted(able, key=lambda g: rng.random())[:count]:
                budgets = (600,) if is_learned(method) else (200, 300, 600) if graph.ops <= 50 else (200, 300)
                budget = 0 if method.partition(":")[0] in UNBUDGETED else budgets[int(rng.random() * len(budgets))]
                cells[Cell(kind, graph.name, method, int(rng.random() * 10), budget)] = None
            if big and method in METHODS["of_big"]:
                graph = big[int(rng.random() * len(big))]
                is_quick = graph.ops < 1100 and not kind.startswith("python")
                if is_quick or rng.random() < 0.1:
                    cells[Cell(kind, graph.name, method, int(rng.random() * 10), 200)] = None
    return list(cells)


def chosen_cells(graphs, arguments):
    """Return the cells that the options leave."""
    cells = draw_cells(graphs)
    if arguments.only:
        cells = [cell for cell in cells if is_learned(cell.method) == (arguments.only == "learned")]
    if arguments.fast:
        cells = fast_cells(graphs, cells)
    if arguments.sample:
        cells = spread_over_kinds(cells, arguments.sample)
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        cells = cells[part - 1 :: parts]
    return cells


def fast_cells(graphs, cells):
    """Return 400 plain cells of small graphs."""
    quick = [c for c in cells if not is_learned(c.method) and not is_exact(c.method)]
    return spread_over_kinds([c for c in quick if graphs[c.graph].ops <= 60 and c.evaluations <= 300], 400)


def spread_over_kinds(cells, count):
    """Return so many cells, one of every kind in turn."""
    rng, by_kind = random.Random(SEED), defaultdict(list)
    for cell in sorted(cells, key=lambda c: rng.random()):
        by_kind[cell.kind].append(cell)
    ranked = sorted((at / len(KINDS), kind, cell) for kind, of in by_kind.items() for at, cell in enumerate(of))
    return [cell for _, _, cell in ranked[:count]]


def schedopt(*arguments):
    """Run a command line in this process, so that kernels are compiled once."""
    from schedopt.cli.main import app
    from typer.testing import CliRunner

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = schedopt(*arguments)
    assert result.exit_code == 0, (arguments, result.stderr, result.exception)
    return result.stdout


def options_of(cell, graph, folder):
    """Return the options of a cell's problem with files and links in place."""
    size = "small" if "bytes" in graph.tags else "large"
    found = []
    for option in KINDS[cell.kind].options:
        if option == "LINK":
            found += SMALL_LINK if size == "small" else LINK
        elif option in SHARES:
            found += ["--memory-limit", SHARES[option][cell.seed % 3]]
        elif option == "TIMES":
            found.append(graph.path.with_suffix(".csv"))
        elif found and found[-1] == "--machine":
            made = option in CORPUS["machines"]
            found.append(folder / f"{option}-{size}.yaml" if made else EXAMPLES / "machines" / f"{option}.yaml")
        else:
            found.append(option)
    return [str(option) for option in found]


def run_cell(cell, graph, folder):
    """Return a cell's record, or None where time ended the run."""
    options = options_of(cell, graph, folder)
    budget = ["--time-limit", str(SECONDS)] if is_exact(cell.method) else []
    budget += ["--evaluations", str(cell.evaluations)] if cell.evaluations else []
    if cell.kind.startswith("python "):
        exit_code, text, said = through_python(graph.path, cell, [*options, *budget])
    else:
        result = schedopt("solve", graph.path, "-m", cell.method, "--seed", cell.seed, "--json", *options, *budget)
        exit_code, text, said = result.exit_code, result.stdout, result.stderr
        if result.exception and not isinstance(result.exception, SystemExit):
            return {"exit": exit_code, "raised": repr(result.exception)}
    said = " ".join(said.replace(str(folder), "").replace(str(EXAMPLES), "").split())
    if not text:
        return {"exit": exit_code, "said": said}
    return record(exit_code, json.loads(text), said)


def through_python(path, cell, options):
    """Solve by `schedopt.solve` with a command line's options as arguments."""
    import schedopt as package

    keys = {"-d": "devices"}
    given, at = {}, 0
    while at < len(options):
        name = keys.get(options[at], options[at].removeprefix("--").replace("-", "_"))
        takes = at + 1 < len(options) and not options[at + 1].startswith("-")
        value = options[at + 1] if takes else True
        given[name] = int(value) if name in ("devices", "evaluations") else value
        at += 1 + takes
    said = StringIO()
    try:
        with redirect_stderr(said):
            result = package.solve(str(path), cell.method, seed=cell.seed, **given)
    except package.SchedoptError as error:
        return 2, "", f"{type(error).__name__}: {error}"
    return 0, result.json(), " ".join(result.notes)


def record(exit_code, document, said):
    """Return what is compared of a schedule document."""
    if is_late(document):
        return None
    steps = [{key: step[key] for key in STEP_KEYS if key in step} for step in document["steps"]]
    value = document["peak_memory"] if document["task"] == "memory" else document["runtime_us"]
    notes = [note for note in re.split(r"(?:^| )note: ", said) if note and not note.startswith("compiling kernels")]
    return {
        "exit": exit_code,
        "steps": digest(steps),
        "times": digest(document["steps"]),
        "value": value,
        "peaks": document["peak_memory_per_device"],
        "runtime": document["runtime_us"],
        "bound": document["lower_bound"],
        "status": document["status"],
        "evaluations": document["evaluations"],
        "found_by": document["found_by"],
        "arenas": document.get("arenas"),
        "limit": document["memory_limit"],
        "notes": notes,
    }


def is_late(document):
    return not document["repeatable"]


def digest(value):
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


_graphs, _folder = {}, Path()


def begin(graphs, folder):
    """Tell a worker of the graphs."""
    global _graphs, _folder
    _graphs, _folder = graphs, folder


def work(cell):
    start = time.perf_counter()
    try:
        found = run_cell(cell, _graphs[cell.graph], _folder)
    except Exception as error:  # a crash is a result that a comparison shows
        found = {"exit": -1, "raised": repr(error)}
    return cell, found, time.perf_counter() - start


def version_of_package():
    """Return a hash of the package's own source."""
    import schedopt as package

    root, found = Path(package.__file__).parent, hashlib.sha256()
    for folder in ("cli", "core", "policies", "datasets"):
        for path in sorted((root / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def save(path, document):
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(document, indent=0, sort_keys=True))
    part.replace(path)


def write(path, arguments):
    version = version_of_package()
    document = json.loads(path.read_text()) if path.exists() else {}
    if document.get("version") != version:
        document = {"version": version, "cells": {}, "seconds": {}}
    start = saved = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(arguments.graphs or name)
        folder.mkdir(exist_ok=True)
        graphs = make_graphs(folder)
        document["graphs"] = {g.name: hashlib.sha256(g.path.read_bytes()).hexdigest()[:16] for g in graphs.values()}
        cells = [cell for cell in chosen_cells(graphs, arguments) if str(cell) not in document["cells"]]
        first = set(fast_cells(graphs, cells))
        cells = sorted(spread_over_kinds(cells, len(cells)), key=lambda cell: cell not in first)
        print(f"{len(cells):,} cells of {len(graphs)} graphs; {len(document['cells']):,} are there", flush=True)
        context = multiprocessing.get_context("spawn")
        with context.Pool(arguments.jobs, begin, (graphs, folder)) as pool:
            for done, (cell, found, seconds) in enumerate(pool.imap_unordered(work, cells), 1):
                document["cells"][str(cell)] = found
                document["seconds"][str(cell)] = round(seconds, 3)
                if time.perf_counter() - saved > 20 or done == len(cells):
                    saved = time.perf_counter()
                    save(path, document)
                    print(f"{done:,} cells in {saved - start:.0f} s", flush=True)
    save(path, document)
    print(summary(document))


def summary(document):
    records = [one for one in document["cells"].values() if one]
    solved = sum("steps" in one for one in records)
    raised = sum("raised" in one for one in records)
    late = len(document["cells"]) - len(records)
    refused = len(records) - solved - raised
    return f"{solved:,} schedules, {refused:,} refused, {raised} crashed, {late} ended by time"


def verdict(before, after):
    """Return how a record changed, and the fields that differ."""
    if before == after:
        return "identical", []
    if before is None or after is None:
        return "ended by time", []
    fields = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    if "steps" not in before or "steps" not in after:
        return ("changed" if before["exit"] == after["exit"] else "worse" if "steps" in before else "better"), fields
    is_same = math.isclose(before["value"], after["value"], rel_tol=1e-9)
    if before["exit"] == after["exit"] and is_same:
        return "changed", fields
    return "worse" if (after["exit"], after["value"]) > (before["exit"], before["value"]) else "better", fields


def compare(before, after, show):
    """Print what changed, by kind of problem, and return 1 if anything did."""
    first, second = json.loads(before.read_text()), json.loads(after.read_text())
    shared = [name for name in first["cells"] if name in second["cells"]]
    verdicts = {name: verdict(first["cells"][name], second["cells"][name]) for name in shared}
    counts, fields = defaultdict(Counter), Counter()
    for name, (what, changed) in verdicts.items():
        counts[name.partition(" / ")[0]][what] += 1
        fields[" ".join(changed)] += bool(changed)
    heads = ("identical", "better", "worse", "changed", "ended by time")
    print(f"{len(first['cells']):,} cells before, {len(second['cells']):,} after, {len(shared):,} in both")
    total = sum(counts.values(), Counter())
    for kind, found in [*((k, counts[k]) for k in KINDS if k in counts), ("all", total)]:
        print(f"{kind:28}" + "".join(f"{found[head]:>8} {head}" for head in heads))
    for changed, number in fields.most_common(12):
        print(f"{number:6,} differ in: {changed}")
    for what in ("worse", "better", "changed"):
        names = [name for name, (found, _) in verdicts.items() if found == what]
        for name in names[: None if what == "worse" else show]:
            print(f"{what}: {name}")
            old, new = first["cells"][name], second["cells"][name]
            print("".join(f"    {f}: {old.get(f)} -> {new.get(f)}\n" for f in verdicts[name][1]), end="")
    others = [name for name in first["graphs"] if first["graphs"][name] != second["graphs"].get(name)]
    print(f"{len(others)} graphs differ: {' '.join(others)}")
    return int(bool(others or set(total) - {"identical", "ended by time"}))


def sample(path, target, count):
    """Write some short plain cells with their records, which a test replays."""
    document = json.loads(path.read_text())
    cells = [Cell(*(int(p) if p.isdecimal() else p for p in name.split(" / "))) for name in document["cells"]]
    short = [c for c in cells if document["seconds"][str(c)] < 0.4 and not is_learned(c.method)]
    short = [c for c in short if not is_exact(c.method) and "steps" in (document["cells"][str(c)] or {})]
    kept = {str(cell): compact(document["cells"][str(cell)]) for cell in spread_over_kinds(short, count)}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
    target.write_text(f"{{\n{lines}\n}}\n")
    print(f"{len(kept)} cells, {sum(document['seconds'][name] for name in kept):.0f} s")


def compact(found):
    """Return the fields of a record that no machine's rounding changes."""
    return [found["steps"], found["value"], found["status"], found["evaluations"], found["found_by"]]


def replay(records, folder):
    """Return the cells of a sample that end otherwise today, with both records."""
    graphs, differ = make_graphs(folder), {}
    for name, expected in records.items():
        cell = Cell(*(int(part) if part.isdecimal() else part for part in name.split(" / ")))
        found = run_cell(cell, graphs[cell.graph], folder)
        got = compact(found) if found and "steps" in found else found
        if got != expected:
            differ[name] = (expected, got)
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["write", "compare", "sample"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--part", metavar="K/N", help="every Nth cell, from the Kth")
    parser.add_argument("--only", choices=["plain", "learned"])
    parser.add_argument("--fast", action="store_true", help="400 plain cells of small graphs, of every kind")
    parser.add_argument("--sample", type=int, metavar="N", help="N cells, of every kind")
    parser.add_argument("--graphs", metavar="FOLDER", help="keep the drawn graphs here")
    parser.add_argument("--show", type=int, default=10, help="how many changes are printed of each sort")
    arguments = parser.parse_args()
    if arguments.verb == "write":
        return write(arguments.files[0], arguments)
    if arguments.verb == "sample":
        return sample(*arguments.files, arguments.sample or 200)
    return compare(*arguments.files, arguments.show)


if __name__ == "__main__":
    sys.exit(main())
