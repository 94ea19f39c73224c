"""`schedopt compare`: tables by hand, every way to write them, runs that fail, resuming, and Ctrl-C."""

import json
import re
import sys
import types
from dataclasses import replace

import naive
import numpy as np
import pytest
from models.signals import interrupted_after
from schedopt import Method, write_graph
from schedopt.core.search.registry import METHODS

MEMORY = {"input": 26, "approximate-dp": 19}  # of the diamond, as in test_solve.py


@pytest.fixture
def folder(run, diamond, tmp_path):
    """Return a folder of two graphs: the diamond, and a layered one of 12 ops."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    write_graph(diamond, folder / "diamond.pbtxt")
    assert run("gen", "layered", "--nodes", 12, "--seed", 1, folder / "layered.pb.gz", "--quiet").exit_code == 0
    return folder


@pytest.fixture
def fails(monkeypatch):
    """Register a method that always raises, with brackets that markup would eat."""

    def solve(search, parameters):
        raise ZeroDivisionError("nothing [bold] left")

    code = types.ModuleType("failing_method")
    code.solve = solve
    monkeypatch.setitem(sys.modules, "failing_method", code)
    monkeypatch.setitem(METHODS, "fails", Method("failing_method:solve", "", ""))


def row(text, method):
    """Return the cells of a method's line in the printed table."""
    line = next(line for line in text.splitlines() if re.match(rf"{re.escape(method)}\s", line))
    return re.split(r"\s{2,}", line.strip())


def pairs_of_cells(run, folder, methods):
    """Return the cells of two methods, graph by graph."""
    cells = json.loads(run("compare", folder, "--methods", methods, "--json").stdout)["cells"]
    return list(zip(cells[::2], cells[1::2], strict=True))


def test_table_by_hand(run, diamond_file):
    result = run("compare", diamond_file, "--methods", "input,approximate-dp")
    assert result.exit_code == 0
    assert result.stdout.startswith("peak memory, 1 graph, 1 device, seed 0\n")
    assert row(result.stdout, "input")[1:6] == ["reference", "36.84%", "36.84%", "–", "0"]  # 26 / 19
    assert row(result.stdout, "approximate-dp")[1:6] == ["+26.92%", "0.00%", "0.00%", "1/0/0", "1"]  # 19 / 26
    assert "±" not in result.stdout  # no interval of one graph


@pytest.mark.slow
def test_several_graphs_have_an_interval_and_a_row_each(run, folder):
    result = run("compare", folder, "--methods", "input,approximate-dp", "--per-graph", "--seeds", 2)
    assert "2 graphs, 1 device, seeds 0 to 1" in result.stdout
    assert row(result.stdout, "diamond") == ["diamond", "6", "19 B", "26 B", "19 B*"]
    layered = row(result.stdout, "layered")
    assert layered[1] == "12"
    assert all(re.fullmatch(r"[\d.]+ [KM]?i?B\*?", peak) for peak in layered[2:]), "bytes, though no op has a runtime"
    assert "±" in row(result.stdout, "input")[2]
    assert "95% confidence interval over graphs (Student t): 12.71 standard errors of 2 graphs" in result.stdout
    deviation = "standard deviation over seeds of the mean improvement, percentage points: input 0, approximate-dp 0"
    assert deviation in result.stdout
    improvements = sorted(
        100 * (1 - cell["value"] / base["value"]) for base, cell in pairs_of_cells(run, folder, "input,approximate-dp")
    )
    share = 100 * sum(improvement >= 0 for improvement in improvements) / 2
    assert (
        "graphs no worse than the reference, least and largest improvement: "
        f"approximate-dp {share:.1f}%, {improvements[0]:+.2f}% to {improvements[1]:+.2f}%\n"
    ) in result.stdout
    assert "gap from the best known as a geometric mean: input " in result.stdout


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal(run, folder, width, monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    arguments = ["--methods", "input,dfs,random,approximate-dp,brkga:evaluations=100", "--per-graph", "--quiet"]
    result = run("compare", folder, *arguments, env={"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "xterm"})
    lines = re.sub(r"\x1b\[\d*m", "", result.stdout).splitlines()
    assert max(map(len, lines)) <= width
    assert re.search(r"[34]\dm", result.stdout) is None  # no colour
    assert "…" not in result.stdout
    assert any("time, s" in line and line.rstrip().endswith("CPU, s") for line in lines)


def test_json_and_its_file_are_one_document(run, folder, tmp_path):
    output = tmp_path / "all.json"
    arguments = ["--methods", "input,approximate-dp", "--memory-limit", "1GiB", "--json", "--output", output]
    printed = json.loads(run("compare", folder, *arguments).stdout)
    assert printed == json.loads(output.read_text())
    assert (printed["memory_limit"], printed["reference"], printed["runs"]) == (2**30, "input", 4)
    assert printed["summary"][1]["improvement"]["graphs"] == 2
    values = {cell["method"]: cell["value"] for cell in printed["cells"] if cell["graph"] == "diamond"}
    assert values == MEMORY


def test_a_limit_relative_to_the_input_order(run, folder):
    diamond = folder / "diamond.pbtxt"
    result = run("compare", diamond, "--methods", "input,approximate-dp", "--memory-limit", "75%")
    assert "at most 75% of the input order's peak each" in result.stdout
    assert "runs that did not meet the memory limit" in result.stdout
    assert "no run of any method" not in result.stdout
    result = run("compare", diamond, "--methods", "input,dfs", "--memory-limit", "50%")
    assert result.exit_code == 1
    assert "graphs on which no run of any method kept the memory limit: 1" in result.stdout


@pytest.fixture
def page(run, folder, tmp_path):
    """Return the page of a comparison of three methods on two graphs."""
    output = tmp_path / "page.html"
    result = run("compare", folder, "--methods", "input,dfs,approximate-dp", "--output", output)
    assert result.exit_code == 0, result.output
    return output


@pytest.mark.slow
def test_html_is_a_page_of_its_own_with_every_figure(page, run, folder):
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"""(src|href)=["'](?!#)|@import|url\((?!#)""", text), "it needs no other file"
    assert "<svg" in text
    document = json.loads(run("compare", folder, "--methods", "input,dfs,approximate-dp", "--json").stdout)
    for summary in document["summary"]:
        row = re.search(rf"<tr><td>{summary['method']}.*?</tr>", text)[0]
        numbers = {float(number) for number in re.findall(r'data-number="([^"]*)"', row)}
        figures = (*(summary[name]["mean"] for name in ("improvement", "gap_from_best", "gap_from_bound")),)
        assert {*figures, summary["least_improvement"], summary["most_improvement"], summary["wins"]} <= numbers
    for cell in document["cells"]:
        assert f'data-number="{float(cell["value"])!r}"' in text


def test_graphs_without_runtimes_are_pointed_out(run, folder):
    notice = "every makespan is 0"
    assert notice in run("compare", folder / "layered.pb.gz", "--methods", "input", "--task", "runtime").stdout
    assert notice not in run("compare", folder, "--methods", "input", "--task", "runtime").stdout


@pytest.mark.slow
def test_a_failing_method_is_shown_with_its_reason(run, diamond_file, fails):
    result = run("compare", diamond_file, "--methods", "input,fails,fails:time_limit=1s", "--seeds", 2, "--per-graph")
    assert result.exit_code == 0
    assert row(result.stdout, "fails")[1:6] == ["–", "–", "–", "0/0/0", "0"]
    reason = "fails: 2 of 2 runs failed (first diamond, seed 0): ZeroDivisionError: nothing [bold] left"
    assert reason in result.stdout
    assert reason.replace("fails:", "fails:time_limit=1s:") in result.stdout
    assert row(result.stdout, "diamond")[-1] == "failed"
    assert run("compare", diamond_file, "--methods", "fails").exit_code == 1


def test_infeasible_is_told_apart_and_exits_1_if_all_are(run, diamond_file):
    result = run("compare", diamond_file, "--methods", "input,approximate-dp", "--memory-limit", 20, "--per-graph")
    assert result.exit_code == 0
    assert row(result.stdout, "diamond")[-2:] == ["limit-not-met", "19 B*"]
    assert "and worse than any feasible run): input 1 of 1\n" in result.stdout
    assert row(result.stdout, "approximate-dp")[1:5] == ["–", "0.00%", "0.00%", "1/0/0"]
    none = run("compare", diamond_file, "--methods", "input", "--memory-limit", "5B")
    assert (none.exit_code, none.stderr) == (1, "")


def test_files_are_taken_once_and_named_apart(run, diamond, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_graph(diamond, tmp_path / name / "same.pbtxt")
    again = tmp_path / "two" / "same.pbtxt"
    result = run("compare", tmp_path / "one", tmp_path / "two", again, "--methods", "input", "--json")
    names = [cell["graph"] for cell in json.loads(result.stdout)["cells"]]
    assert names == [str(tmp_path / "one" / "same.pbtxt"), str(again)]
    assert "named twice and taken once" in result.stderr


@pytest.mark.parametrize("name", ["[red]x", "model:two:x"])
def test_a_name_like_markup_is_printed_as_it_is(run, diamond, tmp_path, name):
    write_graph(diamond, tmp_path / f"{name}.pbtxt")
    result = run("compare", tmp_path / f"{name}.pbtxt", "--methods", "input", "--per-graph")
    assert row(result.stdout, name)[1] == "6"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(run, tmp_path, jobs):
    """Small graphs, free transfers, or ops without runtimes would let BRKGA meet the bound and end."""
    graph, _ = naive.random_graph(np.random.default_rng(0), 60)
    folder = tmp_path / "graphs"
    folder.mkdir()
    for factor in (1, 2):
        write_graph(replace(graph, runtime=factor * graph.runtime), folder / f"{factor}.pbtxt")
    file, output = tmp_path / "runs.jsonl", tmp_path / "runs.csv"
    methods = "input,brkga:evaluations=100000000"
    slow = ["compare", folder, "--task", "runtime", "--methods", methods, "--resume", file]
    options = ["--jobs", jobs, "--output", output, "--bandwidth", "1"]
    code, stdout, stderr = interrupted_after(file, [*slow, *options])
    assert code == 130, stderr
    said = re.search(r"interrupted: (\d) of 4 runs are done and kept in .*; the same command goes on", stderr)
    assert said, stderr
    assert int(said[1]) == output.read_text().count("\n") - 1 <= file.read_text().count("\n") < 4
    assert "makespan, 2 graphs" in stdout
    with file.open("a") as torn:
        torn.write('{"key": "torn')
    again = run("compare", folder, "--task", "runtime", "--methods", "input", "--resume", file, "--bandwidth", "1")
    assert again.exit_code == 0
    assert [json.loads(line)["method"] for line in file.read_text().splitlines()] == ["input", "input"]
