"""The README holds: its commands run and print what it says, and CI does what it tells a newcomer to do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)\n```", README, flags=re.DOTALL)


def sessions():
    """Yield the consoles' commands with the lines that the README shows after each."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def without_times(lines):
    return [re.sub(r"│ time .*", "│ time", line).rstrip() for line in lines]


@pytest.mark.parametrize(("command", "shown"), [pytest.param(*s, id=s[0]) for s in sessions()])
def test_commands_print_what_the_readme_shows(command, shown, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert without_times(done.stdout.splitlines()) == without_times(shown)


def test_ci_runs_the_two_commands_of_the_first_screen():
    script = (ROOT / ".ci" / "run").read_text()
    commands = [command for block in blocks("sh") for command in block.split(" && ")]
    assert len(commands) == 5
    for command in commands:
        assert command.replace("pip install", "pip install --quiet") in script
