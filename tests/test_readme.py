"""The README holds: its commands run and print what it says, and CI does what it tells a newcomer to do."""

from models.consoles import ROOT, blocks, new_folder, walk

README = (ROOT / "README.md").read_text()


def test_commands_print_what_the_readme_shows(tmp_path):
    assert "console" in {block.language for block in blocks(README)}
    walk(README, new_folder(tmp_path), languages=("console",))


def test_ci_runs_the_two_commands_of_the_first_screen():
    script = (ROOT / ".ci" / "run").read_text()
    commands = [command for language, text in blocks(README) if language == "sh" for command in text.split(" && ")]
    assert len(commands) == 5
    for command in commands:
        assert command.replace("pip install", "pip install --quiet") in script
