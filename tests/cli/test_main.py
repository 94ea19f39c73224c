"""The command as a whole: its subcommands, `python -m schedopt`, completion, and errors as one sentence."""

import os
import subprocess
import sys
from typing import get_args

import pytest
import typer
from schedopt import __version__
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
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert f"Usage: schedopt {' '.join(words)} " in result.stdout
    narrow = run(*words, "--help", env={"COLUMNS": "80"}).stdout
    assert "…" not in narrow  # cut off
    assert not {"<bool>", "<str>", "<list[str]>", "[["} & set(narrow.replace("│", " ").split())


def test_groups_have_a_subcommand_for_every_generator_and_trainable_method():
    inner = [words for words in SUBCOMMANDS if len(words) == 2]
    assert [name for group, name in inner if group == "gen"] == ["layered", "synthetic", "augment", "architecture"]
    trained = [name for group, name in inner if group == "train"]
    assert trained == [name for name, method in METHODS.items() if method.trainer]


def test_the_first_help_names_every_subcommand_under_a_heading(run):
    text = run("--help", env={"COLUMNS": "120"}).stdout
    for words in SUBCOMMANDS:
        assert len(words) > 1 or f"│ {words[0]} " in text
    assert "<" not in text  # as in <bool>
    headings = [text.index(f"─ {heading} ─") for heading in HEADINGS]
    assert headings == sorted(headings)


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
        ("solve", "decode", "", {*topoformer.DECODERS, *direct.DECODERS}),
        ("compare", "methods", "auto,df", {"auto,dfs", "auto,dfs-postorder"}),
        ("methods", "name", "gp", {"gp-dfs"}),
        ("plot", "kind", "g", {"gantt"}),
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
