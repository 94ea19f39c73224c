"""The command as a whole: its subcommands, `python -m schedopt`, completion, and errors as one sentence."""

import io
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import get_args

import pytest
import typer
from schedopt import __version__, read_graph
from schedopt.cli import options
from schedopt.cli.console import Output, complain, tell
from schedopt.cli.main import app
from schedopt.core.search.registry import METHODS
from schedopt.core.solvers.placements import brkga
from schedopt.policies.direct import solve as direct
from schedopt.policies.topoformer import solve as topoformer


def walk(group, words=()):
    """Yield the words of every subcommand, groups included."""
    for name, command in group.commands.items():
        yield [*words, name]
        if hasattr(command, "commands"):
            yield from walk(command, [*words, name])


HEADINGS = ("Schedule a graph", "Your own model", "Methods and many graphs")
SUBCOMMANDS = list(walk(typer.main.get_command(app)))


def start(*words, **environment):
    """Run `python -m schedopt` in a process of its own."""
    command = [sys.executable, "-m", "schedopt", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_version(run):
    assert run("--version").stdout == f"schedopt {__version__}\n"


@pytest.mark.parametrize("words", SUBCOMMANDS, ids=" ".join)
def test_every_subcommand_has_help(run, words):
    result = run(*words, "--help", env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert f"Usage: schedopt {' '.join(words)} " in result.stdout
    assert "…" not in result.stdout  # cut off
    assert not {"<bool>", "<str>", "<list[str]>", "[["} & set(result.stdout.replace("│", " ").split())


def test_groups_have_a_subcommand_for_every_generator_and_trainable_method():
    inner = [words for words in SUBCOMMANDS if len(words) == 2]
    assert [name for group, name in inner if group == "gen"] == ["layered", "synthetic", "augment", "architecture"]
    trained = [name for group, name in inner if group == "train"]
    assert trained == [name for name, method in METHODS.items() if method.trainer]


@pytest.mark.slow
def test_the_first_help_names_every_subcommand_under_a_heading(run):
    text = run("--help", env={"COLUMNS": "120"}).stdout
    for words in SUBCOMMANDS:
        assert len(words) > 1 or f"│ {words[0]} " in text
    assert "<" not in text  # as in <bool>
    headings = [text.index(f"─ {heading} ─") for heading in HEADINGS]
    assert headings == sorted(headings)


@pytest.mark.slow
def test_python_m_is_the_command_under_its_name(tmp_path):
    assert start("--version").stdout == f"schedopt {__version__}\n"
    usage = start("solve")
    assert (usage.returncode, usage.stdout) == (2, "")
    assert usage.stderr.startswith("Usage: schedopt solve ")
    wrong = start("show", tmp_path / "none.pb")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith(f"error: {tmp_path / 'none.pb'}: ") and wrong.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("meth", "methods"),
        ("gen lay", "layered"),
        ("train local", "local-"),
        pytest.param("compare graph --methods auto,topo", "auto,topoformer", marks=pytest.mark.slow),
        pytest.param("train regal --task r", "runtime", marks=pytest.mark.slow),
        pytest.param("methods order", "order-search", marks=pytest.mark.slow),
    ],
)
def test_shells_complete_what_can_be_known(typed, completed):
    words = f"schedopt {typed}"
    done = start(_SCHEDOPT_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert done.stdout.startswith(completed)


@pytest.mark.parametrize(
    ("words", "option", "typed", "completed"),
    [
        ("solve", "method", "topo", {"topoformer"}),
        ("solve", "task", "r", {"runtime"}),
        ("solve", "decoder", "", set(get_args(brkga.Decoder))),
        ("solve", "decode", "", {*topoformer.Parameters.decoders, *direct.Parameters.decoders}),
        ("compare", "methods", "auto,df", {"auto,dfs", "auto,dfs-postorder"}),
        ("methods", "name", "gp", {"gp-dfs"}),
        ("plot", "kind", "g", {"gantt", "graph"}),
    ],
)
def test_parameters_complete(words, option, typed, completed):
    context = typer.Context(typer.main.get_command(app).get_command(None, words))
    (parameter,) = (one for one in context.command.params if one.name == option)
    assert {item.value for item in parameter.shell_complete(context, typed)} == completed


def test_a_typing_error_in_a_group_is_guessed(run):
    result = run("gen", "layred")
    assert result.exit_code == 2
    assert "Did you mean 'layered'?" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--format tabel", "must be one of table, order, json, not 'tabel'; did you mean table?"),
        ("--format zz", "must be one of table, order, json, not 'zz'"),
        ("--pins from", "must be from-graph, not 'from'"),
        ("--devices x", "must be a whole number, not 'x'"),
        ("--devices 1.5", "must be a whole number, not '1.5'"),
        ("--width x", "must be a whole number, not 'x'"),
    ],
)
def test_a_value_that_cannot_be(run, diamond_file, words, said):
    result = run("solve", diamond_file, *words.split(), env={"COLUMNS": "200"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert f": {said} " in result.stderr


class Terminal(io.StringIO):
    """A terminal without a width of its own, so that it has 80 columns."""

    def isatty(self):
        return True


LONG = f"{'word ' * 30}/a/path/{'x' * 90} --an-option after it"


SAY = {"tell": tell, "complain": complain, "say": lambda text: Output().say(text), "note": lambda t: Output().note(t)}


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


@pytest.fixture
def on_terminal(monkeypatch, tmp_path):
    monkeypatch.setattr(options, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["gen", "layered", "--nodes", 12], ["layered.pb.gz", "layered-2.pb.gz"]),
        (["gen", "synthetic", "--nodes", 12, "--format", "pbtxt"], ["synthetic.pbtxt", "synthetic-2.pbtxt"]),
        (["gen", "architecture", "unet"], ["unet.pb.gz", "unet-2.pb.gz"]),
        (["gen", "augment", "diamond.pbtxt", "--copies", 1], ["diamond-copy.pb.gz", "diamond-copy-2.pb.gz"]),
        (["convert", "diamond.pbtxt"], ["diamond.pb.gz", "diamond-2.pb.gz"]),
        (["import", "small.dot"], ["small.pb.gz", "small-2.pb.gz"]),
    ],
)
def test_on_a_terminal_each_writes_a_new_file_and_says_which(run, on_terminal, diamond_file, tmp_path, words, names):
    (tmp_path / "small.dot").write_text('digraph { a [size="4MiB"]; b [size="1MiB"]; a -> b }')
    for name in names:
        result = run(*words)
        assert result.exit_code == 0, result.output
        assert result.stdout == ""
        assert f"note: wrote {name}" in result.stderr
    assert read_graph(names[0]) == read_graph(names[1])
    assert run(*words, *(["-o"] if words[0] == "import" or "augment" in words else []), "-").stdout_bytes, (
        "- still pours"
    )


@pytest.mark.slow
def test_several_graphs_on_a_terminal_are_a_new_folder(run, on_terminal, diamond_file):
    for words, folder in (("gen layered -n 2 --nodes 12", "layered"), ("gen augment diamond.pbtxt", "diamond-copy")):
        for name in (folder, f"{folder}-2"):
            result = run(*words.split())
            assert (result.exit_code, result.stdout) == (0, ""), result.output
            assert f"note: wrote {name}: " in result.stderr


def test_json_on_a_terminal_names_the_file(run, on_terminal, diamond_file):
    assert '"output": "diamond.pb.gz"' in run("convert", diamond_file, "--json").stdout


@pytest.mark.parametrize(("name", "file"), [("a/b c", "a-b-c.pb"), ("..", "graph.pb"), ("ünï", "ünï.pb")])
def test_the_name_of_a_file_stays_in_this_folder(on_terminal, name, file):
    assert options.output_of(None, name, ".pb") == file


@pytest.mark.slow
def test_a_real_terminal(diamond_file, tmp_path):
    terminal, side = pty.openpty()
    command = [sys.executable, "-m", "schedopt", "convert", diamond_file]
    subprocess.run(command, stdout=side, stderr=side, cwd=tmp_path, check=True)
    os.close(side)
    assert b"note: wrote diamond.pb.gz" in os.read(terminal, 1000)
    os.close(terminal)
    assert (tmp_path / "diamond.pb.gz").is_file()
