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


DROPPING = """
import os, signal, time
from schedopt.cli import signals
signals.listen()
class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGNAL)
        time.sleep(0.01)
try:
    Dropping()
    time.sleep(20)
except KeyboardInterrupt:
    print(signals.interrupted_code())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGINT", "130"), ("SIGTERM", "143")])
def test_a_signal_that_a_callback_drops_is_raised_again(name, code):
    done = subprocess.run([sys.executable, "-c", DROPPING.replace("SIGNAL", name)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{code}\n", "")
