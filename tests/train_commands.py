"""What the tests of `schedopt train topoformer`, `regal` and `gas` share: refusals, weights, and processes to stop."""

import os
import signal
import subprocess
import sys
import time

import torch
from safetensors.torch import load_file
from schedopt.policies.run_folder import CHECKPOINT, CURVE, WEIGHTS, curve_of


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
    for _ in range(6000):
        if process.poll() is not None or len(curve_of(folder)) >= count:
            return
        time.sleep(0.01)


def check_that_ctrl_c_and_sigkill_lose_nothing(method, options, lines, run, folder, jobs=1):
    """Stop a run by both, which then ends like one that was left alone on one worker.

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
