"""The bar: drawn on a terminal alone, on standard error, with what is done, its share, and any text as it is."""

import io
import os
import re
import signal

import pytest
from rich.console import Console
from schedopt.cli.console import Output
from schedopt.cli.progress import LiveLine, interruptible, progress_bar


@pytest.fixture
def out():
    """Return an output to a terminal of 100 columns that keeps what is drawn."""
    out = Output()
    terminal = {"force_terminal": True, "force_interactive": True, "_environ": {"TERM": "xterm"}}
    out.console = Console(file=io.StringIO(), width=100, soft_wrap=True, color_system=None, **terminal)
    return out


def drawn(out):
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", out.console.file.getvalue())


def test_pieces_are_counted_and_texts_are_no_markup(out):
    with progress_bar(out, "first", 5) as bar:
        bar(2)
        bar(2, what="[bold] of a graph")
    assert "4/5" in drawn(out)
    assert "[bold] of a graph" in drawn(out)


def test_what_is_done_may_be_given_as_it_is(out):
    with progress_bar(out, "orders", 10) as bar:
        bar(done=7)
    assert " 7/10" in drawn(out)


def test_a_share_is_in_percent_and_its_text_is_cut_to_the_width(out):
    with progress_bar(out, "validating", 1.0) as bar:
        bar(done=0.25, what="phase " + "long " * 40)
    lines = drawn(out).replace("\r", "\n").splitlines()
    assert any("25%" in line and line.rstrip().endswith("…") for line in lines)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_is_drawn_where_nobody_sees_it(quiet, capsys):
    with progress_bar(Output(quiet), "graphs", 3) as bar:
        bar()
        bar(done=2, what="more")
    assert capsys.readouterr() == ("", "")


def test_a_live_line_says_what_has_room_and_never_takes_a_second_line(out):
    for texts in (("a [b] " + "long " * 30, "a [b] shorter"), ("c" * 150,)):
        with LiveLine(out, "brkga: starting") as line:
            line(*texts)
    lines = drawn(out).replace("\r", "\n").splitlines()
    assert any(line.endswith("a [b] shorter") for line in lines)
    assert any(line.endswith("c…") for line in lines)
    assert max(map(len, lines)) < 100


def test_ctrl_c_amid_a_write_to_the_same_stream_is_heeded(out, monkeypatch):
    def amid(text):
        raise RuntimeError("reentrant call")

    monkeypatch.setattr(out, "note", amid)
    with interruptible(out, "a checkpoint") as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.wait(5)
