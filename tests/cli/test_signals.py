"""Signals at two moments of every command: its exit code, no traceback, and nothing half done."""

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
