"""List the sentences that a user meets: errors, notes and warnings, at 80 columns, with `{name}` for their values.

    python tests/bench/messages.py [FOLDER_OR_FILE ...]    # by default cli core policies datasets

Help texts of options and docstrings are left out. To be read as a whole before a release, in the light of
`docs/dev/index.md#style`: does each name the file, the value and the remedy, in one thought?
"""

import ast
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHER_WORDS = {"help", "metavar", "summary", "source", "rich_help_panel", "epilog"}
"""Keywords whose texts are no messages."""
FEWEST_WORDS = 3


def text_of(node):
    """Return the text of a string or f-string, with the source of each value in braces; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else f"{{{inner(part)}}}" for part in node.values]
        return "".join(parts)
    return None


def inner(part):
    """Return the source of a value within an f-string, on one line."""
    return " ".join(ast.unparse(part.value).split())


def messages(node, call=""):
    """Yield `(line, call, text)` of all sentences below a node, each with the call or statement that it stands in."""
    text = text_of(node)
    if text is not None:
        if len(text.split()) >= FEWEST_WORDS:
            yield node.lineno, call, text
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Call):
        call = ast.unparse(node.func).rpartition(".")[2]
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.keyword) and child.arg in OTHER_WORDS):
            yield from messages(child, call)


def main(places):
    """Print the messages of files and folders."""
    count = 0
    for place in places or ("cli", "core", "policies", "datasets"):
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for line, call, text in messages(ast.parse(file.read_text())):
                print(f"\n{file.relative_to(ROOT)}:{line} {call}")
                print(textwrap.fill(text, 80, initial_indent="  ", subsequent_indent="  "))
                count += 1
    print(f"\n{count} messages")


if __name__ == "__main__":
    main(sys.argv[1:])
