"""Data sets on disk: names, folders, splits, noisy copies, overwriting, and stops in between."""

import json
from collections import Counter

import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import FormatError, GraphBuilder, GraphError, UsageError
from schedopt.core.files.costgraph import parse_graph
from schedopt.datasets.filters import topology_hash
from schedopt.datasets.folder import (
    DatasetFolder,
    encoded_copies,
    names_of_copies,
    noisy_copy,
    parse_ratio,
    split_by_size,
)
from schedopt.datasets.layered import LayeredParameters, layered_graph
from schedopt.datasets.recipe import Recipe
from schedopt.datasets.synthetic import SyntheticParameters


def test_numbers_sort_as_they_count():
    assert Recipe(LayeredParameters()).file_name(0) == "layered-500-0001"
    recipe = Recipe(SyntheticParameters())
    names = [recipe.file_name(index, 12_000) for index in range(12_000)]
    assert (names[0], names[-1]) == ("synthetic-00001", "synthetic-12000")
    assert names == sorted(names)


def test_copies_are_named_after_their_original_and_no_two_alike():
    own = names_of_copies(["unet", "a/b", "Unet", "../..", "unet-copy-001", "\x1b[31m" + "x" * 300], 2)
    assert own[0] == ["unet", "unet-copy-001-2", "unet-copy-002"]
    assert own[1] == ["a-b", "a-b-copy-001", "a-b-copy-002"]
    assert own[2] == ["Unet-2", "Unet-2-copy-001", "Unet-2-copy-002"]
    assert [names[0] for names in own[3:5]] == ["graph", "unet-copy-001"]
    names = [name.casefold() for names in own for name in names]
    assert len(set(names)) == len(names)
    assert all(len(name) < 130 and name.isprintable() and "/" not in name for name in names)


def graphs(count):
    return [((7 * i) % count + 10, f"{i:016x}") for i in range(count)]


def test_each_group_of_five_is_split_three_to_one_to_one():
    given = graphs(50)
    parts = split_by_size(given, (3, 1, 1), seed=0)
    ranked = [part for _, part in sorted(zip(given, parts, strict=True))]
    for start in range(0, 50, 5):
        assert Counter(ranked[start : start + 5]) == {"train": 3, "valid": 1, "test": 1}
    assert len({tuple(ranked[start : start + 5]) for start in range(0, 50, 5)}) > 3


@pytest.mark.parametrize(
    ("count", "ratio", "shares"),
    [
        (1, (3, 1, 1), (1, 0, 0)),
        (2, (3, 1, 1), (1, 1, 0)),
        (3, (3, 1, 1), (2, 1, 0)),
        (4, (3, 1, 1), (2, 1, 1)),
        (7, (3, 1, 1), (4, 2, 1)),
        (10, (80, 10, 10), (8, 1, 1)),
        (105, (80, 10, 10), (84, 11, 10)),
        (6, (1, 0, 1), (3, 0, 3)),
        (5, (2, 0, 0), (5, 0, 0)),
    ],
)
def test_a_last_group_that_is_not_full_is_shared_out_close_to_the_ratio(count, ratio, shares):
    parts = Counter(split_by_size(graphs(count), ratio, seed=3))
    assert (parts["train"], parts["valid"], parts["test"]) == shares


def test_ratios_are_parsed():
    assert parse_ratio("3-1-1") == (3, 1, 1)
    assert parse_ratio("80-0-20") == (80, 0, 20)
    for wrong in ("3-1", "3:1:1", "0-1-1", "a-b-c", "3-1-1-1", "-3-1-1"):
        with pytest.raises(UsageError, match="write train-valid-test like 3-1-1"):
            parse_ratio(wrong)


@pytest.fixture
def graph():
    builder = GraphBuilder("original")
    for op in range(300):
        builder.add_op(
            f"op{op}",
            inputs=[(op - 1, 0)] if op else [],
            control=[op - 2] if op > 1 else [],
            outputs=[1_000_000, 2_000_000],
            aliases=[0, -1] if op else None,
            runtime=5000,
            workspace=77,
            persistent=99,
            final=op == 299,
        )
    return builder.build()


def test_every_size_and_runtime_has_its_own_factor_between_half_and_one_and_a_half(graph):
    copy = noisy_copy(graph, np.random.default_rng(0))
    data = ~graph.is_control
    for noisy, original in ((copy.tensor_size[data], graph.tensor_size[data]), (copy.runtime, graph.runtime)):
        factor = noisy / original
        assert factor.min() >= 0.5 and factor.max() <= 1.5
        assert factor.mean() == pytest.approx(1, abs=0.05)
        assert factor.std() == pytest.approx(12**-0.5, abs=0.03)
        assert len(set(factor.tolist())) > 0.9 * len(factor)
    assert np.array_equal(copy.runtime, np.rint(copy.runtime))


def test_everything_else_stays(graph):
    copy = noisy_copy(graph, np.random.default_rng(0))
    assert not copy.tensor_size[graph.is_control].any()
    for name in ("op_ids", "workspace", "persistent", "output_ptr", "alias_of", "is_final", "read_ptr", "read_tensor"):
        assert np.array_equal(getattr(copy, name), getattr(graph, name)), name
    assert copy.op_names == graph.op_names
    assert topology_hash(copy) == topology_hash(graph)
    assert np.array_equal(copy.predecessors[1], graph.predecessors[1])


@pytest.mark.slow
def test_copies_depend_on_seed_number_and_topology_only():
    graphs = [layered_graph(LayeredParameters(nodes=20), np.random.default_rng(seed)) for seed in range(3)]
    pairs = [(graph, topology_hash(graph)) for graph in graphs]
    copies = list(encoded_copies(pairs, 30, 4, ".pb"))
    assert copies == list(encoded_copies(pairs, 30, 4, ".pb", jobs=2))
    assert [(topology, number) for topology, number, _ in copies] == [
        (topology, number) for _, topology in pairs for number in range(1, 31)
    ]
    assert len({data for _, _, data in copies}) == 90
    alone = list(encoded_copies(pairs[2:], 2, 4, ".pb"))
    assert alone == copies[60:62]
    assert alone != list(encoded_copies(pairs[2:], 2, 5, ".pb"))
    assert {topology_hash(parse_graph(data, "copy")) for _, _, data in copies} == {t for _, t in pairs}


def test_copies_that_would_not_fit_are_refused():
    huge = sketch(f"a -> {2**62} {2**61}", "huge")
    with pytest.raises(GraphError, match="huge: the costs of a noisy copy would exceed"):
        for seed in range(100):
            noisy_copy(huge, np.random.default_rng(seed))


def layered(seed, nodes=20):
    return LayeredParameters(nodes=nodes).draw(seed, np.random.default_rng(seed))


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


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
        with pytest.raises(UsageError, match=r"one.pb: exists and belongs to no data set; name another folder"):
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
