"""The documentation holds: nothing lacks its place, tables are the code's, links resolve, and what pages do works."""

import importlib.util
import inspect
import json
import os
import re
import sys
from pathlib import Path

import pytest
import schedopt
from models.consoles import ROOT, blocks, new_folder, run_here, walk
from schedopt.core.base import errors
from schedopt.core.experiments.comparison import SUFFIXES as COMPARISONS
from schedopt.core.files.costgraph import SUFFIXES
from schedopt.core.programs.importers import IMPORTERS
from schedopt.core.report.plots.draw import ENDINGS
from schedopt.core.search.registry import METHODS, parameter_fields

DOCS = ROOT / "docs"
PAGES = {page.relative_to(DOCS).as_posix(): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
QUICK = ("python/index.md",)
"""Pages with commands that take no more than some seconds; the others are walked with the slow tests."""


def script(path):
    """Return a script of the docs as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate():
    return script(DOCS / "generate.py")


def prose_of(text):
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def long_sentences(text):
    """Return the sentences of more than 40 words in a page's paragraphs and items, tables left out."""
    text = re.sub(r"^(\||#|<!--).*$", "", prose_of(text), flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|^ *(?:[-+*]|\d+[.)]) |[.?!]\W*\s", text, flags=re.MULTILINE)
    return [part for part in parts if len(part.split()) > 40]


def list_in_paragraph(text):
    """Return the first line that goes on with a paragraph, but begins as an item of a list does: it would be one."""
    item = r"(?:[-+*]|\d+[.)]) "
    found = re.search(rf"^(?!\s|{item}|[#|<])\S.*\n({item}.*)", prose_of(text), flags=re.MULTILINE)
    return found and found[1]


def unknown_options(text, known):
    """Return the options of subcommands that a page gives in a block or in code, and that these do not have."""
    names = "|".join(sorted(known, key=len, reverse=True))
    used = re.findall(rf"\bschedopt ({names})\b([^\n`|&;>]*)", text.replace("\\\n", " "))
    return [
        f"{name} {o}" for name, rest in used for o in re.findall(r"(?<!\S)--?[a-z][\w-]*", rest) if o not in known[name]
    ]


def anchors(text):
    """Return the anchors of a page's headings, as forges and MyST make them."""
    prose = prose_of(text)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "\n<!-- generated:" in text])
def test_tables_are_what_the_code_says(page, generate):
    marks = re.findall("^<!-- generated:", PAGES[page], flags=re.MULTILINE)
    assert len(generate.MARKED.findall(PAGES[page])) == len(marks), "no end"
    assert generate.generated(PAGES[page]) == PAGES[page], "run python docs/generate.py"


def test_every_subcommand_has_its_options_on_a_page(generate):
    for name in generate.commands():
        page = generate.page_of("commands", name)
        assert page.removesuffix(".md") == name.split()[0]


@pytest.mark.parametrize("kind", ["methods", "commands", "names", "reference", "schedule document"])
def test_every_list_is_on_a_page(kind):
    assert sum(f"<!-- generated: {kind} -->" in text for text in PAGES.values()) == 1


def test_every_command_that_a_page_shows_has_its_options(generate):
    known = {
        name: {
            "--help",
            "-h",
            *(text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)),
        }
        for name, command in generate.commands().items()
    }
    assert unknown_options("`schedopt show G --top 3` or `schedopt gen layered -x -n 2`", known) == ["gen layered -x"]
    for page in (*DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "README.md"):
        assert unknown_options(page.read_text(), known) == [], page


def test_every_method_has_its_section_and_parameters(generate):
    assert f"by {len(METHODS)} methods" in (ROOT / "README.md").read_text()
    for name in METHODS:
        page = PAGES[f"methods/{generate.page_of('methods', name)}"]
        assert name in anchors(page)
        table = page.partition(f"<!-- generated: parameters {name} -->")[2].partition("<!-- end -->")[0]
        for field in parameter_fields(name):
            assert f"| `{field.name}` |" in table


def test_every_public_name_is_in_the_reference(generate):
    assert set(generate.public_names()) <= set(schedopt.__all__)
    text = PAGES["python/api.md"]
    for name in schedopt.__all__:
        assert name == "__version__" or f":: schedopt.{name}\n" in text


def test_every_exit_code_is_explained():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.SchedoptError)]
    literal = [
        int(code)
        for file in (ROOT / "cli").rglob("*.py")
        for code in re.findall(r"\b(?:typer\.Exit|sys\.exit|SystemExit)\((\d+)\)", file.read_text())
    ]
    assert {0, 1, 130} <= set(literal)
    for code in {*literal, *(c.exit_code for c in classes)}:
        assert f"\n| {code} |" in PAGES["concepts/exit-codes.md"]


def test_every_file_format_is_explained():
    text = PAGES["concepts/formats.md"]
    plain = {suffix.removesuffix(".gz") for suffix in SUFFIXES}
    for suffix in (*plain, *ENDINGS, *COMPARISONS, ".onnx", ".pt2", ".jsonl", ".yaml", ".safetensors"):
        assert f"`{suffix}`" in text
    for kind in IMPORTERS:
        assert kind in text.lower()
    schema = json.loads((ROOT / "core" / "files" / "schedule.schema.json").read_text())
    for fields in (schema, *schema["$defs"].values()):
        for name in fields.get("properties", ()):
            assert f"| `{name}`" in text


def test_docstrings_name_pages_that_there_are():
    for folder in ("cli", "core", "datasets", "policies"):
        for file in (ROOT / folder).rglob("*.py"):
            for page in re.findall(r"docs/([\w/-]+\.md)", file.read_text()):
                assert page in PAGES, f"{file.relative_to(ROOT)} names docs/{page}"


def test_links_resolve():
    for page, text in PAGES.items():
        for link in LINK.findall(prose_of(text)):
            target, _, anchor = link.partition("#")
            if re.match(r"\w+:", target):
                continue
            file = (DOCS / page).parent / target if target else DOCS / page
            assert file.exists(), f"{page}, {link}: no such file"
            assert not anchor or anchor in anchors(file.read_text()), f"{page}, {link}: no such heading"


def test_sentences_are_short():
    assert [len(long_sentences(f"{'word ' * n}end. Next `a.b` one.\n\n- item")) for n in (39, 40)] == [0, 1]
    assert {page: found for page, text in PAGES.items() if (found := long_sentences(text))} == {}


def test_docstrings_of_modules_begin_with_their_noun():
    relative = re.compile(r'r?"""(What|Where|Which|How|Whether|Who|When)\b')
    files = (file for folder in ("cli", "core", "datasets", "policies") for file in (ROOT / folder).rglob("*.py"))
    assert [file for file in files if relative.match(file.read_text())] == []


def test_the_picture_of_the_rooms_shows_their_imports():
    rooms = script(DOCS / "images" / "rooms.py")
    assert rooms.drawing() == rooms.PICTURE.read_text(), "run python docs/images/rooms.py"


def test_no_paragraph_turns_into_a_list():
    assert list_in_paragraph("step 4 + 6\n+ 6 = 16") == "+ 6 = 16"
    assert {page: found for page, text in PAGES.items() if (found := list_in_paragraph(text))} == {}


@pytest.mark.parametrize("page", [p for p in PAGES if p.startswith("results/") and p != "results/index.md"])
def test_results_say_when_of_which_commit_where_and_how(page):
    """The head of each table of a page is followed by a date, a commit and a machine, and then by a command."""
    heads = PAGES[page].split("| date | commit | machine |\n| --- | --- | --- |\n")[1:]
    assert heads
    for head in heads:
        assert re.match(r"\| 20\d\d-\d\d-\d\d[^|]* \| `[0-9a-f]{7}`[^|]* \| [^|]*cores[^|]* \|\n\n```sh\n\S", head), (
            head[:200]
        )
    for section in re.split(r"^## ", PAGES[page], flags=re.MULTILINE)[1:]:
        assert "\n|---|" not in section or "| date | commit |" in section or len(heads) == 1, section[:60]


def test_every_page_is_reached_from_the_first():
    reached, waiting = set(), ["index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            links = [link.partition("#")[0] for link in LINK.findall(PAGES[page])]
            inside = [os.path.normpath(Path(page).parent / link) for link in links if link.endswith(".md")]
            waiting += [link for link in inside if link in PAGES]
    assert reached == set(PAGES)


def runs(page):
    return any(block.language in ("console", "python") for block in blocks(PAGES[page]))


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[] if p in QUICK else [pytest.mark.slow]) for p in PAGES if runs(p)]
)
def test_pages_do_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    walk(PAGES[page], new_folder(tmp_path), run=run_here)
