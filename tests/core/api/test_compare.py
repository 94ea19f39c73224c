"""compare: graphs, files and folders; printed, saved, drawn and resumed."""

import pytest
import schedopt
from matplotlib.figure import Figure
from models.small_graphs import chain_of


def test_compare_takes_graphs_files_and_folders(diamond, diamond_file, tmp_path):
    folder = diamond_file.parent
    comparison = schedopt.compare([chain_of(3), folder], "input, dfs", evaluations=None, seeds=2)
    assert comparison.graphs == ("chain", "diamond")
    assert len(comparison.cells) == comparison.planned == 8
    assert repr(comparison) == comparison.summary()
    assert "reference" in comparison.summary()
    for suffix, start in ((".csv", "graph,"), (".json", "{"), (".html", "<!DOCTYPE")):
        comparison.save(tmp_path / f"c{suffix}")
        assert (tmp_path / f"c{suffix}").read_text().startswith(start)
    with pytest.raises(schedopt.UsageError, match=r"c\.txt: the name must end in one of \.csv"):
        comparison.save(tmp_path / "c.txt")
    assert isinstance(comparison.plot(), Figure)
    with pytest.raises(schedopt.UsageError, match="methods are names such as 'auto', not 5"):
        schedopt.compare(diamond, 5)
    with pytest.raises(schedopt.UsageError, match="seeds= must be at least 1"):
        schedopt.compare(diamond, "input", seeds=0)


def test_compare_goes_on_where_it_stopped(diamond, tmp_path):
    first = schedopt.compare(diamond, ["random"], resume=tmp_path / "runs.jsonl")
    again = schedopt.compare(diamond, ["random"], resume=tmp_path / "runs.jsonl")
    assert first.cells == again.cells
