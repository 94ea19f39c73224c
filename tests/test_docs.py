"""The documentation holds: nothing lacks its place, tables are the code's, links resolve, and what pages do works."""

import dataclasses
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import schedopt
from models.consoles import ROOT, blocks, new_folder, walk
from schedopt.core import errors
from schedopt.core.files.costgraph import SUFFIXES
from schedopt.core.programs.importers import IMPORTERS
from schedopt.core.search.registry import METHODS, parameters_class

DOCS = ROOT / "docs"
PAGES = {page.relative_to(DOCS).as_posix(): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
QUICK = ("concepts/exit-codes.md", "python/index.md")
"""Pages with commands that take no more than some seconds; the others are walked with the slow tests."""


@pytest.fixture(scope="module")
def generate():
    """Return docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def folder_text(folder):
    return "\n".join(text for page, text in PAGES.items() if page.startswith(f"{folder}/"))


def anchors(text):
    """Return the anchors of a page's headings, as forges and MyST make them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "<!-- generated:" in text])
def test_tables_are_what_the_code_says(page, generate):
    assert generate.generated(PAGES[page]) == PAGES[page], "run python docs/generate.py"


def test_every_subcommand_has_its_options_on_a_page(generate):
    for name in generate.commands():
        page = generate.page_of("commands", name)
        assert page.removesuffix(".md") == name.split()[0]


def test_every_method_has_its_section_and_parameters(generate):
    for name in METHODS:
        page = PAGES[f"methods/{generate.page_of('methods', name)}"]
        assert name in anchors(page)
        table = page.partition(f"<!-- generated: parameters {name} -->")[2].partition("<!-- end -->")[0]
        for field in dataclasses.fields(parameters_class(name)):
            assert f"| `{field.name}` |" in table


def test_every_public_name_is_in_the_reference(generate):
    assert set(generate.public_names()) <= set(schedopt.__all__)
    text = PAGES["python/api.md"]
    for name in schedopt.__all__:
        assert name == "__version__" or f":: schedopt.{name}\n" in text


def test_every_exit_code_is_explained():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.SchedoptError)]
    for code in {0, 130, *(c.exit_code for c in classes)}:
        assert f"\n| {code} |" in PAGES["concepts/exit-codes.md"]


def test_every_file_format_is_explained():
    text = PAGES["concepts/formats.md"]
    plain = {suffix.removesuffix(".gz") for suffix in SUFFIXES}
    for suffix in (*plain, ".onnx", ".pt2", ".svg", ".html", ".jsonl", ".csv", ".yaml", ".safetensors"):
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


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page):
    prose = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    for link in LINK.findall(prose):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", target):
            continue
        file = (DOCS / page).parent / target if target else DOCS / page
        assert file.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(file.read_text()), f"{link}: no such heading"


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
    "page",
    [pytest.param(p, marks=[] if p in QUICK else [pytest.mark.slow]) for p in PAGES if runs(p)],
)
def test_pages_do_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    walk(PAGES[page], new_folder(tmp_path))


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
