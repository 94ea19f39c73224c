"""Commands that take a while, to be sent SIGINT and SIGTERM at any moment, and what has to come of it."""

import signal
import subprocess
import sys
import time

import schedopt

STARTED = "from schedopt.cli.start import main; print('started', flush=True); main()"
COMMANDS = {
    "solve": "solve g.pb --devices 2 -t 20s -o out.json -q",
    "cp-sat": "solve small.pb --devices 2 --method cp-sat -t 20s -o out.json -q",
    "recompute": "solve g.pb --recompute --memory-limit 80% -t 20s -q",
    "addresses": "solve g.pb --addresses -t 20s -o out.json -q",
    "compare": "compare g.pb small.pb --methods auto,brkga:time-limit=9s -t 9s -q",
    "compare --jobs": "compare g.pb small.pb --methods auto,brkga:time-limit=9s -t 9s --jobs 2 -q",
    "pareto": "pareto g.pb -t 20s -q",
    "fit": "fit g.pb --memory 6MiB -q",
    "pack": "pack b.csv -t 20s -o offsets.csv -q",
    "gen": "gen synthetic set --count 400 --filter 0.18 --seed 1 -q",
    "train topoformer": "train topoformer -o run --set validation_nodes=200 -q",
    "train regal": "train regal -o run2 -q",
    "import": "import trace.json -o t.pb -q",
    "optimize": "optimize net:made -t 20s -q",
    "measure": "measure net:made --repeats 400 -q",
}
NET = """
import torch

def made():
    return torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(40)]).eval(), torch.ones(64, 512)
"""


def prepare(folder):
    """Write what the commands read."""
    script = [sys.executable, "-m", "schedopt"]
    layered = ["gen", "layered", "g.pb", "--nodes", "400", "--seed", "3", "-q"]
    for words in (layered, ["gen", "synthetic", "small.pb", "--nodes", "40-40", "--seed", "3", "-q"]):
        subprocess.run([*script, *words], cwd=folder, check=True)
    rows = "".join(f"b{i},{i % 97},{i % 97 + 1 + i % 31},{64 + 64 * (i * 7 % 53)}\n" for i in range(900))
    (folder / "b.csv").write_text("id,lower,upper,size\n" + rows)
    (folder / "net.py").write_text(NET)
    nodes = [{"id": i, "name": "", "ctrl_deps": 1} for i in range(2, 60_000)]
    (folder / "trace.json").write_text(str({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}).replace("'", '"'))
    assert schedopt.read_graph(str(folder / "g.pb")).num_ops >= 400


def interrupted(folder, words, number, moment):
    """Send a signal some seconds after a command has started; return what is wrong, and the seconds until it ended."""
    command = [sys.executable, "-c", STARTED, *words.split()]
    with subprocess.Popen(command, cwd=folder, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout.readline() == "started\n"
        time.sleep(moment)
        process.send_signal(number)
        sent = time.monotonic()
        out, said = process.communicate(timeout=120)
    took = time.monotonic() - sent
    # or Python had not begun to listen, or the command ended by itself, well or in a deliberate error
    right = (128 + number, -number, *((0, 1, 2) if took < 1 else ()))
    is_bug = any(word in said + out for word in ("Traceback", "is a bug", "terminate called", "Fatal"))
    wrong = f"exit {process.returncode}: {said[-300:]}" if process.returncode not in right or is_bug else ""
    return wrong, took


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


NUMBERS = (signal.SIGINT, signal.SIGTERM)
