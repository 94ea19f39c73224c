"""Commands that take a while, to be sent SIGINT and SIGTERM at any moment, and what has to come of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import schedopt

STARTED = "from schedopt.cli.start import main; print('started', flush=True); main()"
COMMANDS = {
    "solve": "solve g.pb --devices 2 -t 20s -o out.json",
    "annealing": "solve g.pb --method annealing --evaluations 100000000 -o out.json",
    "brkga": "solve g.pb --devices 2 --method brkga --evaluations 100000000 -o out.json",
    "cp-sat": "solve small.pb --devices 2 --method cp-sat -t 20s -o out.json",
    "approximate-dp": "solve g.pb --method approximate-dp -t 20s -o out.json",
    "recompute": "solve g.pb --recompute --memory-limit 80% -t 20s -o out.json",
    "addresses": "solve g.pb --addresses -t 20s -o out.json",
    "reserved": "solve g.pb --allocator cuda -t 20s -o out.json",
    "compare": "compare g.pb small.pb --methods auto,brkga:time-limit=9s -t 9s --resume out.jsonl -o out.json",
    "compare --jobs": "compare g.pb small.pb --methods auto,brkga:time-limit=9s -t 9s --jobs 2 --resume out.jsonl",
    "pareto": "pareto g.pb -t 20s --resume out.jsonl -o out.json",
    "fit": "fit g.pb --memory 6MiB",
    "pack": "pack b.csv -t 20s -o out.csv",
    "gen": "gen synthetic set --count 400 --filter 0.18 --seed 1",
    "train topoformer": "train topoformer -o run --set validation_nodes=200",
    "train regal": "train regal -o run",
    "train direct": "train direct -o run",
    "train local-search": "train local-search g.pb --evaluations 20000 --resume out.jsonl",
    "train brkga": "train brkga g.pb --evaluations 20000 --resume out.jsonl",
    "import": "import trace.json -o out.pb",
    "import a model": "import net:made -o out.pb --costs measured",
    "optimize": "optimize net:made -o out.pt2 -t 20s --repeats 40 --schedule out.json",
    "measure": "measure net:made --repeats 400",
    "apply": "apply net:made net.json -o out.pt2",
    "plot": "plot g.pb g.json -o out.png",
    "show": "show g.pb",
    "check": "check g.pb g.json",
    "diff": "diff g.json other.json --graph g.pb",
}
WAYS = {"SIGINT": (signal.SIGINT, os.kill), "Ctrl-C": (signal.SIGINT, os.killpg), "SIGTERM": (signal.SIGTERM, os.kill)}
NET = """
import torch

def made():
    return torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(40)]).eval(), torch.ones(64, 512)
"""


def prepare(folder):
    """Write what the commands read."""
    script = [sys.executable, "-m", "schedopt"]
    (folder / "net.py").write_text(NET)
    for words in (
        "gen layered g.pb --nodes 400 --seed 3",
        "gen synthetic small.pb --nodes 40-40 --seed 3",
        "import net:made -o net.pb",
        "solve g.pb --method dfs -o g.json",
        "solve g.pb --method bfs -o other.json",
        "solve net.pb --method dfs -o net.json",
    ):
        subprocess.run([*script, *words.split(), "-q"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    rows = "".join(f"b{i},{i % 97},{i % 97 + 1 + i % 31},{64 + 64 * (i * 7 % 53)}\n" for i in range(900))
    (folder / "b.csv").write_text("id,lower,upper,size\n" + rows)
    nodes = [{"id": i, "name": "", "ctrl_deps": 1} for i in range(2, 60_000)]
    (folder / "trace.json").write_text(str({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}).replace("'", '"'))


def interrupted(folder, words, way, moment):
    """Send a signal some seconds after a command has started; return what is wrong, and the seconds until it ended."""
    number, send = WAYS[way]
    before = {path.name for path in folder.iterdir()}
    (folder / "tmp").mkdir()
    command = [sys.executable, "-c", STARTED, *words.split()]
    own = {"cwd": folder, "start_new_session": True, "env": {**os.environ, "TMPDIR": str(folder / "tmp")}}
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, **own) as process:
        assert process.stdout.readline() == "started\n"
        time.sleep(moment)
        send(process.pid, number)
        sent = time.monotonic()
        out, said = process.communicate(timeout=120)
    took = time.monotonic() - sent
    # or Python had not begun to listen, or the command ended by itself, well or in a deliberate error
    right = (128 + number, -number, *((0, 1, 2) if took < 1 else ()))
    wrong = [f"exit {process.returncode}"] * (process.returncode not in right)
    wrong += [word for word in ("Traceback", "is a bug", "terminate called", "Fatal") if word in said + out]
    wrong += [f"still there: {text}" for text in _left_of(process.pid)]
    left = (path.name for path in (folder / "tmp").iterdir() if not path.name.startswith("torchinductor_"))
    wrong += [f"left in TMPDIR: {name}" for name in left]  # that is PyTorch's cache, which stays after a whole run too
    new = [folder / name for name in sorted({path.name for path in folder.iterdir()} - before - {"tmp"})]
    wrong += [what for path in new if (what := _half_written(path, folder))]
    if "stopping with the best" in said and "-o out." in words and not list(folder.glob("out.*")):
        wrong.append("the best so far is not written")
    subprocess.run(["rm", "-rf", "tmp", *new], cwd=folder, check=True)
    return f"{', '.join(wrong)}: {said[-600:]}" if wrong else "", took


def _left_of(session):
    """Return the processes of a session that are still there a second later, when workers have seen its end."""
    end = time.monotonic() + 1
    found = [""]
    while found and time.monotonic() < end:
        time.sleep(0.05)
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
                words = (stat.parent / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if int(of) == session and state != "Z":
                found.append(words[:150])
    return found


def _half_written(path, folder):
    """Return what is wrong with a file that a command has left, or nothing."""
    if path.name.startswith("."):
        return f"{path.name} is left"
    try:
        if path.suffix == ".jsonl":
            [json.loads(line) for line in path.read_text().split("\n")[:-1]]
        elif path.suffix == ".json":
            document = json.loads(path.read_text())
            if "steps" in document and document["graph"] == "g":
                schedopt.read_schedule(str(path), schedopt.read_graph(str(folder / "g.pb"))).verify()
        elif path.suffix == ".pb":
            schedopt.read_graph(str(path))
        elif path.is_dir():
            return next((f"{part} is left" for part in path.rglob(".*.*")), "")
    except (ValueError, schedopt.SchedoptError) as error:
        return f"{path.name}: {error}"
    return ""


def interrupted_after(file, words, lines=1):
    """Press Ctrl-C once a command has kept so many lines in a file; return its exit code, and what it said."""
    command = [sys.executable, "-c", "from schedopt.cli.start import main; main()", *map(str, words)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        for _ in range(2000):
            if process.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= lines):
                break
            time.sleep(0.1)
        time.sleep(0.5)  # a line is in the file a moment before its run counts as done
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    return process.returncode, stdout, stderr
