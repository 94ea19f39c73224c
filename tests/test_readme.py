"""The README holds: what it says works, its links resolve, and CI does what it tells a newcomer to do."""

import re

import pytest
from models.consoles import ROOT, blocks, new_folder, walk
from schedopt.core.search.registry import METHODS

README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_readme_does_what_it_says(tmp_path, monkeypatch):
    """Its consoles print what it shows, and its Python runs."""
    monkeypatch.chdir(tmp_path)
    walk(README, new_folder(tmp_path))


def test_ci_runs_the_two_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    commands = [command for block in blocks(README) if block.language == "sh" for command in block.text.split(" && ")]
    assert len(commands) == 5
    for command in commands:
        assert command.replace("pip install", "pip install --quiet") in script


def test_the_readme_is_one_screen_that_leads_on():
    assert README.count("\n") <= 120
    for link in re.findall(r"\]\(([^)#]+)", README):
        assert re.match(r"\w+:", link) or (ROOT / link).exists(), link


def test_every_method_is_in_the_readme():
    for method in METHODS:
        assert f"`{method}`" in README
