"""Files that pages and scripts name are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
SCRIPTS = [path for suffix in ("sh", "py") for path in sorted((ROOT / "examples").rglob(f"*.{suffix}"))]
ROOMS = "cli|core|policies|datasets|tests|examples|docs"
IN_PAGES = re.compile(rf"(?<=`)(?:{ROOMS})/[\w./-]*(?=`)")
IN_SCRIPTS = re.compile(rf"\b(?:{ROOMS})/[\w/-]+\.(?:sh|py|md|yaml)\b")
INVENTED = "NAME"


def name_of(path):
    return str(path.relative_to(ROOT))


def missing(paths):
    return [path for path in paths if INVENTED not in path and not (ROOT / path).exists()]


def test_a_page_names_files_that_there_are():
    for page in PAGES:
        text = page.read_text()
        commands = "\n".join(re.findall(r"^```(?:sh|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
        assert missing([*IN_PAGES.findall(text), *IN_SCRIPTS.findall(commands)]) == [], name_of(page)


def test_a_script_names_files_that_there_are():
    for script in SCRIPTS:
        assert missing(IN_SCRIPTS.findall(script.read_text())) == [], name_of(script)


def test_both_find_what_is_not_there():
    assert missing(IN_PAGES.findall("`core/nodes.py`, `core/`, core/nodes.py")) == ["core/nodes.py"]
    assert missing(IN_SCRIPTS.findall("# usage: examples/table.sh FOLDER")) == ["examples/table.sh"]
