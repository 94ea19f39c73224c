"""Data sets on disk: folders, splits, overwriting, and stops in between."""

import json

import numpy as np
import pytest
from schedopt.core.errors import FormatError, UsageError
from schedopt.core.files.costgraph import find_graphs, read_graph
from schedopt.datasets.duplicates import topology_hash
from schedopt.datasets.fill import Original, distinct_originals, improvable_originals, write_augmented, write_generated
from schedopt.datasets.folder import DatasetFolder
from schedopt.datasets.layered import LayeredParameters
from schedopt.datasets.recipe import Recipe


def layered(seed, nodes=20):
    return LayeredParameters(nodes=nodes).draw(seed, np.random.default_rng(seed))


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_generated_graphs_are_named_by_topology_and_split(tmp_path):
    recipe = Recipe(LayeredParameters(nodes=20), seed=2, suffix=".pbtxt")
    folder = DatasetFolder(tmp_path / "new" / "set", ".pbtxt")
    calls = []
    counts = write_generated(folder, recipe, 20, (3, 1, 1), advance=lambda: calls.append(1))
    assert counts == {
        "graphs": 20,
        "ops": {"least": 20, "most": 20},
        "split": {"train": 12, "valid": 4, "test": 4},
        "discarded": 0,
    }
    assert len(calls) == 20
    for file in find_graphs([folder.path]):
        assert file.name == f"{topology_hash(read_graph(file))}.pbtxt"
    parts = [len(find_graphs([folder.path / part])) for part in ("train", "valid", "test")]
    assert parts == [12, 4, 4]
    assert not list(folder.path.glob("*.pbtxt"))


def test_jobs_do_not_change_a_file(tmp_path):
    for jobs in (1, 2):
        folder = DatasetFolder(tmp_path / str(jobs), ".pb.gz")
        write_generated(folder, Recipe(LayeredParameters(nodes=20)), 15, (3, 1, 1), jobs)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_copies_go_where_their_original_goes(tmp_path):
    originals = [Original(graph, topology_hash(graph)) for graph in (layered(seed, 10 + seed) for seed in range(7))]
    folder = DatasetFolder(tmp_path, ".pb")
    counts = write_augmented(folder, originals, 3, 0, (3, 1, 1))
    assert counts["graphs"] == 28
    assert counts["ops"] == {"least": 10, "most": 16}
    assert counts["split"] == {"train": 16, "valid": 8, "test": 4}
    for source, original in zip(counts["sources"], originals, strict=True):
        files = sorted(file.name for file in tmp_path.rglob(f"{original.topology}*"))
        assert files == [f"{original.topology}{end}.pb" for end in ("-001", "-002", "-003", "")]
        assert {file.parent.name for file in tmp_path.rglob(f"{original.topology}*")} == {source["part"]}
        assert read_graph(tmp_path / source["part"] / f"{original.topology}.pb") == original.graph


def test_duplicates_and_hopeless_graphs_are_dropped_by_name():
    graphs = [layered(0), layered(1), layered(0)]
    kept, dropped = distinct_originals(graphs, "topology")
    assert ([original.graph for original in kept], dropped) == (graphs[:2], ["layered-0"])
    chain = LayeredParameters(nodes=9, width_low=0.001, width_high=0.001).draw(5, np.random.default_rng(0))
    kept, dropped = improvable_originals([*kept, Original(chain, topology_hash(chain))], "memory", 1)
    assert ([original.graph for original in kept], dropped) == (graphs[:2], ["layered-5"])


def test_dataset_json_is_written_last_and_protects_the_folder(tmp_path):
    folder = DatasetFolder(tmp_path, ".pb")
    folder.add("0" * 16, b"graph")
    with pytest.raises(UsageError, match="holds graphs of a data set that was not finished; give --overwrite"):
        DatasetFolder(tmp_path, ".pb")
    folder.finish({"graphs": 1, "name": "größer"})
    assert json.loads((tmp_path / "dataset.json").read_text("utf-8")) == {"graphs": 1, "name": "größer"}
    with pytest.raises(UsageError, match="holds a data set; give --overwrite"):
        DatasetFolder(tmp_path, ".pb")


def test_overwriting_removes_the_old_data_set_and_nothing_else(tmp_path):
    folder = DatasetFolder(tmp_path, ".pb.gz")
    folder.add("0123456789abcdef", b"old", "train")
    folder.add("0123456789abcdef-001", b"old")
    folder.finish({})
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "train" / "resnet.pb").write_text("mine")
    DatasetFolder(tmp_path, ".pbtxt", overwrite=True)
    assert contents(tmp_path) == {"notes.txt": b"mine", "train/resnet.pb": b"mine"}


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        DatasetFolder(tmp_path / "file", ".pb")
    with pytest.raises(FormatError, match="cannot be made"):
        DatasetFolder(tmp_path / "file" / "below", ".pb")
