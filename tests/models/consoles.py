"""Runs the blocks of a Markdown page as a reader would: consoles, files to save, Python.

`PYTHONPATH=tests python -m models.consoles PAGE...` writes what the commands print now into the pages' consoles.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
SAVED = re.compile(r"# (\w+\.py)\n")


class Block(NamedTuple):
    """A fenced block: its language and its text."""

    language: str
    text: str


def blocks(page):
    """Return the fenced blocks of a page's text."""
    return [Block(*found) for found in BLOCK.findall(page)]


def sessions(console):
    """Yield the commands of a console with the lines that the page shows after each."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        while command.endswith("\\"):
            command = f"{command}\n{shown.pop(0)}"
        yield command, shown


def run(command, folder):
    """Run a command in a folder, with the installed schedopt first on the path and 100 columns to print in."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, encoding="utf-8")


def without_times(lines):
    """Return lines without what differs from run to run: how long it took."""
    return [re.sub(r"│ time .*", "│ time", line).rstrip() for line in lines]


def new_folder(folder):
    """Let a page's commands find the examples and the docs, as in the repository's root."""
    for name in ("examples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_here(command, folder):
    """Run a command in this process, whose folder it is, where it needs no shell: starting PyTorch takes seconds.

    Modules that it imports from the folder are forgotten, since another page may have others of these names.
    """
    words = shlex.split(command.replace("\\\n", " "))
    if words[0] != "schedopt" or set(command) & set("|<>&;$*"):
        return run(command, folder)
    from schedopt.cli.main import app

    known = set(sys.modules)
    done = CliRunner().invoke(app, words[1:], prog_name="schedopt", env={"COLUMNS": "100"})
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def walk(page, folder, languages=("console", "python"), run=run):
    """Do what a page says, block by block; raises AssertionError where it does not hold.

    A Python block that begins with a comment such as `# net.py` is saved under this name; all others run one after the
    other, with the same names.
    """
    names = {"__name__": "__main__"}
    for language, text in blocks(page):
        if language not in languages:
            continue
        if language == "console":
            for command, shown in sessions(text):
                done = run(command, folder)
                assert done.returncode == 0, f"{command}\n{done.stderr}"
                lines = without_times(done.stdout.splitlines())
                assert lines == without_times(shown), f"{command}\n{lines}\n{done.stderr}"
        elif language == "python":
            if saved := SAVED.match(text):
                (folder / saved[1]).write_text(f"{text}\n")
            else:
                exec(compile(text, "<page>", "exec"), names)


def rewritten(page, folder):
    """Return a page with its consoles as they are now; what follows the time of a run stays."""

    def renewed(found):
        language, text = found[1], found[2]
        if language == "python" and (saved := SAVED.match(text)):
            (folder / saved[1]).write_text(f"{text}\n")
        elif language == "python":
            run(f"python - <<'END'\n{text}\nEND", folder)
        if language != "console":
            return found[0]
        parts = []
        for command, shown in sessions(text):
            done = run(command, folder)
            sys.stderr.write(f"$ {command}\n{done.stderr if done.returncode else ''}")
            lines = [line.rstrip() for line in done.stdout.splitlines()]
            parts += [f"$ {command}", *(shown if without_times(lines) == without_times(shown) else lines)]
        return "```console\n" + "\n".join(parts) + "\n```"

    return BLOCK.sub(renewed, page)


if __name__ == "__main__":
    for name in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            name.write_text(rewritten(name.read_text(), new_folder(Path(folder))))
