"""SIGINT and SIGTERM at two moments of every command: its exit code, and no traceback."""

import pytest
from models.signals import COMMANDS, NUMBERS, interrupted, prepare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signals")
    prepare(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_ends_a_command_with_its_exit_code(folder, command, number):
    for moment in (0.3, 4.0):
        wrong, seconds = interrupted(folder, COMMANDS[command], number, moment)
        assert not wrong
        assert seconds < 60
