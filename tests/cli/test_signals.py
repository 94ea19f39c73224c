"""Signals at two moments of every command: its exit code, no traceback, and nothing half done."""

import subprocess
import sys

import pytest
from models.signals import COMMANDS, interrupted, prepare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signals")
    prepare(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("way", ["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_a_command_with_its_exit_code(folder, command, way):
    for moment in (0.3, 4.0):
        wrong, seconds = interrupted(folder, COMMANDS[command], way, moment)
        assert not wrong
        assert seconds < 60


@pytest.mark.parametrize(("name", "code"), [("SIGINT", "130"), ("SIGTERM", "143")])
def test_a_signal_that_a_callback_drops_is_raised_again(name, code):
    drop = f"type('D', (), {{'__del__': lambda self: signal.raise_signal(signal.{name})}})()"
    script = f"import signal, time; from schedopt.cli import signals; signals.listen()\ntry: {drop}; time.sleep(20)\n"
    script += "except KeyboardInterrupt: print(signals.interrupted_code())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{code}\n", "")
