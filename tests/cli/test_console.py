"""What is said on a terminal: in lines that break between words."""

import io
import re
import sys

import pytest
from schedopt.cli.console import Output, complain, tell


class Terminal(io.StringIO):
    """A terminal without a width of its own, so that it has 80 columns."""

    def isatty(self):
        return True


LONG = f"{'word ' * 30}/a/path/{'x' * 90} --an-option after it"


SAY = {
    "tell": tell,
    "complain": complain,
    "say": lambda text: Output().say(text),
    "note": lambda text: Output().note(text),
}


@pytest.mark.parametrize("how", SAY)
def test_lines_break_between_words_on_a_terminal_alone(monkeypatch, how):
    for kind in (Terminal, io.StringIO):
        monkeypatch.setattr(sys, "stdout" if how == "tell" else "stderr", printed := kind())
        SAY[how](LONG)
        lines = re.sub(r"\x1b\[\d*m", "", printed.getvalue()).splitlines()
        assert " ".join(lines).split()[-len(LONG.split()) :] == LONG.split()
        assert len(lines) == (4 if kind is Terminal else 1)
        assert all(len(line) <= 80 or line.startswith("/a/path/") for line in lines) == (kind is Terminal)


def test_what_is_told_keeps_its_lines_and_what_commands_a_terminal_is_shown(monkeypatch):
    monkeypatch.setattr(sys, "stdout", printed := Terminal())
    tell("one\n\ntwo\x1b[2J")
    assert printed.getvalue() == "one\n\ntwo\\x1b[2J\n"
