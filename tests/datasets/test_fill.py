"""Data sets on disk: folders, splits, overwriting, and stops in between."""

import json

import numpy as np
import pytest
from schedopt.core.base.errors import FormatError, UsageError
from schedopt.core.files.costgraph import find_graphs, read_graph
from schedopt.datasets.filters import topology_hash
from schedopt.datasets.folder import (
    DatasetFolder,
    Original,
    augmented_names,
    distinct_originals,
    generated_names,
    improvable_originals,
    write_augmented,
    write_generated,
)
from schedopt.datasets.layered import LayeredParameters
from schedopt.datasets.recipe import Recipe


def layered(seed, nodes=20):
    return LayeredParameters(nodes=nodes).draw(seed, np.random.default_rng(seed))


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_generated_graphs_are_numbered_and_split(tmp_path):
    recipe = Recipe(LayeredParameters(nodes=20), seed=2, suffix=".pbtxt")
    folder = DatasetFolder(tmp_path / "new" / "set", ".pbtxt", generated_names(recipe, 20))
    calls = []
    counts = write_generated(folder, recipe, 20, (3, 1, 1), advance=lambda: calls.append(1))
    assert counts == {
        "graphs": 20,
        "ops": {"least": 20, "most": 20},
        "split": {"train": 12, "valid": 4, "test": 4},
        "discarded": 0,
    }
    assert len(calls) == 20
    files = find_graphs([folder.path])
    assert sorted(read_graph(file).name for file in files) == [f"layered-20-{number:04d}" for number in range(1, 21)]
    described = folder.finish({"graphs": 20})["files"]
    assert described == {str(f.relative_to(folder.path)): topology_hash(read_graph(f)) for f in files}
    parts = [len(find_graphs([folder.path / part])) for part in ("train", "valid", "test")]
    assert parts == [12, 4, 4]
    assert not list(folder.path.glob("*.pbtxt"))


@pytest.mark.slow
def test_jobs_do_not_change_a_file(tmp_path):
    for jobs in (1, 2):
        recipe = Recipe(LayeredParameters(nodes=20))
        folder = DatasetFolder(tmp_path / str(jobs), ".pb.gz", generated_names(recipe, 15))
        write_generated(folder, recipe, 15, (3, 1, 1), jobs)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_copies_go_where_their_original_goes(tmp_path):
    originals = [Original(graph, topology_hash(graph)) for graph in (layered(seed, 10 + seed) for seed in range(7))]
    names = augmented_names(originals, 3)
    folder = DatasetFolder(tmp_path, ".pb", [name for own in names for name in own])
    counts = write_augmented(folder, originals, 3, 0, (3, 1, 1))
    assert counts["graphs"] == 28
    assert counts["ops"] == {"least": 10, "most": 16}
    assert counts["split"] == {"train": 16, "valid": 8, "test": 4}
    described = folder.finish(counts)["files"]
    for number, (source, original) in enumerate(zip(counts["sources"], originals, strict=True)):
        files = [f"layered-{number}{end}.pb" for end in ("", "-copy-001", "-copy-002", "-copy-003")]
        assert [path for path, topology in described.items() if topology == original.topology] == [
            f"{source['part']}/{file}" for file in files
        ]
        assert read_graph(tmp_path / source["part"] / files[0]) == original.graph
        assert {topology_hash(read_graph(tmp_path / source["part"] / file)) for file in files} == {original.topology}


def test_duplicates_and_hopeless_graphs_are_dropped_by_name():
    graphs = [layered(0), layered(1), layered(0)]
    kept, dropped = distinct_originals(graphs, "topology")
    assert ([original.graph for original in kept], dropped) == (graphs[:2], ["layered-0"])
    chain = LayeredParameters(nodes=9, width_low=0.001, width_high=0.001).draw(5, np.random.default_rng(0))
    kept, dropped = improvable_originals([*kept, Original(chain, topology_hash(chain))], "memory", 1)
    assert ([original.graph for original in kept], dropped) == (graphs[:2], ["layered-5"])


def test_dataset_json_is_written_last_and_protects_the_folder(tmp_path):
    folder = DatasetFolder(tmp_path, ".pb", ["one", "two"])
    folder.add("one", "0" * 16, b"graph")
    assert not (tmp_path / "dataset.json").exists()
    with pytest.raises(UsageError, match="holds graphs of a data set that was not finished; give --overwrite"):
        DatasetFolder(tmp_path, ".pb", ["one"])
    folder.finish({"graphs": 1, "name": "größer"})
    written = {"graphs": 1, "name": "größer", "files": {"one.pb": "0" * 16}}
    assert json.loads((tmp_path / "dataset.json").read_text("utf-8")) == written
    assert sorted(contents(tmp_path)) == ["dataset.json", "one.pb"]
    with pytest.raises(UsageError, match="holds a data set; give --overwrite"):
        DatasetFolder(tmp_path, ".pb", ["one"])


@pytest.mark.parametrize("is_finished", [True, False])
def test_overwriting_removes_the_old_data_set_and_nothing_else(tmp_path, is_finished):
    folder = DatasetFolder(tmp_path, ".pb.gz", ["one", "two", "three"])
    folder.add("one", "0" * 16, b"old", "train")
    folder.add("two", "1" * 16, b"old")
    if is_finished:
        folder.finish({})
    mine = {"notes.txt": b"mine", "train/resnet.pb": b"mine", "0123456789abcdef.pb": b"mine"}
    for name, data in mine.items():
        (tmp_path / name).write_bytes(data)
    DatasetFolder(tmp_path, ".pbtxt", ["one"], overwrite=True).finish({})
    assert contents(tmp_path) == mine | {"dataset.json": b'{\n  "files": {}\n}\n'}


def test_what_is_of_no_data_set_is_neither_overwritten_nor_removed(tmp_path):
    folder = tmp_path / "set"
    (folder / "valid").mkdir(parents=True)
    (folder / "valid" / "one.pb").write_bytes(b"mine")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"one.pb: is there already, and of no data set; name another folder"):
            DatasetFolder(folder, ".pb", ["one"], overwrite)
    (tmp_path / "mine.pb").write_bytes(b"mine")
    (folder / "dataset.json").write_text(json.dumps({"files": {"../mine.pb": "", str(tmp_path / "mine.pb"): ""}}))
    DatasetFolder(folder, ".pb", ["two"], overwrite=True)
    assert (tmp_path / "mine.pb").exists()
    (folder / "dataset.json").write_text("[" * 100_000)
    with pytest.raises(FormatError, match=r"dataset.json: is not the description of a data set"):
        DatasetFolder(folder, ".pb", ["two"], overwrite=True)


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        DatasetFolder(tmp_path / "file", ".pb", [])
    with pytest.raises(FormatError, match="cannot be made"):
        DatasetFolder(tmp_path / "file" / "below", ".pb", [])
