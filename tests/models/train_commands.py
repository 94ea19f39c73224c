"""What the tests of `schedopt train topoformer`, `regal` and `gas` share: runs, refusals, and processes to stop."""

import os
import signal
import subprocess
import sys
import time

import torch
from safetensors.torch import load_file
from schedopt.cli.main import app
from schedopt.policies.training.run_folder import CHECKPOINT, CURVE, WEIGHTS, curve_of
from typer.testing import CliRunner

BAD_USAGE = [
    (["--set", "phases.0.epochs=x"], ["phases.0: epochs must be a whole number, not 'x'"]),
    (["--set", "phases.1.speed=1"], ["there is no setting 'phases.1.speed'"]),
    (["--config", "no-such.yaml"], ["no-such.yaml: cannot be read"]),
    (["--start", "no-such"], ["no-such: cannot be read"]),
    (["--resume"], ["holds no checkpoint to go on with; leave out --resume"]),
    (["no-such-graphs"], ["no-such-graphs: no such file or folder"]),
    (["--output", "/dev/null/run"], ["/dev/null/run: cannot be written to"]),
]
"""Options that no method takes, and what is said about them."""


def succeed(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.stderr
    return result


def write_config(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(text)
    return path


def make_folders(tmp_path_factory, kind, nodes):
    """Return two data sets: twelve graphs to train on, and three others."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, count, seed in (("train", 12, 7), ("valid", 3, 8)):
        succeed("gen", kind, folder / name, "--count", count, "--seed", seed, "--nodes", nodes, "--quiet")
    return folder / "train", folder / "valid"


def finish_run(tmp_path_factory, method, config):
    """Return a finished run on generated graphs: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, succeed("train", method, "--output", folder, "--config", config)


def check_bad_usage(method, options, words, config, run, folder):
    output = [] if "--output" in options else ["--output", folder / "run"]
    options = options if "--config" in options else ["--config", config, *options]
    refused(run("train", method, *output, *options), *words)
    assert not (folder / "run").exists()


def refused(result, *words):
    """Check that a command ended with one sentence of error, which has these words."""
    assert (result.exit_code, result.stdout) == (2, "")
    errors = [line for line in result.stderr.strip().splitlines() if not line.startswith("note: ")]
    assert len(errors) == 1, result.stderr
    for word in words:
        assert word in errors[0]


def assert_same_weights(folder, other):
    for name in (CHECKPOINT, WEIGHTS):
        one, two = load_file(folder / name), load_file(other / name)
        assert one.keys() == two.keys()
        assert all(torch.equal(value, two[key]) for key, value in one.items())


def start_process(method, folder, *options):
    command = ["train", method, "--output", folder, *options]
    words = [sys.executable, "-c", "from schedopt.cli.main import main; main()", *map(str, command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_line(folder, count, process):
    curve = folder / CURVE
    for _ in range(60_000):
        if process.poll() is not None or (curve.exists() and curve.read_bytes().count(b"\n") >= count):
            return
        time.sleep(0.01)


def check_that_stops_lose_nothing(method, options, lines, run, folder, jobs=1, sigkill=False):
    """Stop a run by Ctrl-C and, if asked, SIGKILL; it then ends like one that was left alone on one worker.

    Parameters
    ----------
    method
        Of `schedopt train`.
    options
        Settings.
    lines
        Of the curve of the whole run.
    run
        Runs a command line.
    folder
        Where there is room for two runs.
    jobs
        Workers of the run until Ctrl-C.
    sigkill
        Whether to go on in another process, and kill it. One method is enough: all go on by the same trainer's
        loop, and `run_killed_at_any_moment` kills each without a process.
    """
    stopped, whole = folder / "run", folder / "whole"
    workers = ["--jobs", jobs] if jobs > 1 else []
    with start_process(method, stopped, *options, *workers) as process:
        wait_for_line(stopped, 3, process)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (130, ""), stderr
    assert "Traceback" not in stderr
    again = " ".join(["schedopt", "train", method, "--output", str(stopped), "--resume", *map(str, workers)])
    assert f"go on with: {again}\n" in stderr
    done = len(curve_of(stopped))
    assert 3 <= done < lines
    if sigkill:
        with start_process(method, stopped, *options, "--resume") as process:
            wait_for_line(stopped, done + 2, process)
            process.kill()
            process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
        assert done <= len(curve_of(stopped)) < lines
    resumed = run("train", method, "--output", stopped, "--resume", "--quiet")
    assert resumed.exit_code == 0, resumed.stderr
    assert run("train", method, "--output", whole, *options, "--quiet").exit_code == 0
    assert_same_weights(stopped, whole)
    assert (stopped / CURVE).read_text().count("\n") == lines
