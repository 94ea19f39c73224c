"""`schedopt gen`: where graphs go, what is said about them, and each way to be wrong."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from models.small_graphs import sketch
from schedopt import read_graph, write_graph
from schedopt.core.files.costgraph import find_graphs, format_graph, parse_graph
from schedopt.datasets import recipe
from schedopt.datasets.filters import topology_hash
from schedopt.datasets.layered import LayeredParameters

PARAMETERS = yaml.safe_load(Path(__file__).with_name("gen_parameters.yaml").read_text())
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def gen(run):
    """Run `schedopt gen`, which must succeed."""

    def succeed(*words):
        result = run("gen", *words)
        assert result.exit_code == 0, result.output
        return result

    return succeed


@pytest.fixture
def described(gen):
    """Run `schedopt gen --json`; returns what it prints."""
    return lambda *words: json.loads(gen(*words, "--json").stdout)


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def originals(tmp_path):
    folder = tmp_path / "originals"
    folder.mkdir()
    for seed in range(10):
        graph = LayeredParameters(nodes=10 + seed).draw(seed, np.random.default_rng(seed))
        write_graph(graph, folder / f"net{seed}.pbtxt")
    return folder


@pytest.mark.parametrize("words", [["layered", "--nodes", 30], ["synthetic", "--nodes", 30]])
def test_standard_output_is_the_default_and_holds_one_graph(gen, words):
    result = gen(*words, "--seed", 4)
    extra = 2 if words[0] == "synthetic" else 0
    graph = parse_graph(result.stdout_bytes, "piped")
    assert graph.num_ops == 30 + extra
    assert gen(*words, "--seed", 4, "-").stdout_bytes == result.stdout_bytes
    assert gen(*words, "--seed", 5).stdout_bytes != result.stdout_bytes
    binary = gen(*words, "--seed", 4, "--format", "pb.gz").stdout_bytes
    assert binary == format_graph(graph, "binary", True)


@pytest.mark.parametrize("suffix", [".pbtxt", ".pb", ".pbtxt.gz", ".pb.gz"])
def test_one_file(gen, described, tmp_path, suffix):
    file = tmp_path / f"graph{suffix}"
    result = gen("layered", "--nodes", 12, file)
    assert result.stdout == ""
    assert result.stderr == f"note: wrote {file}: 12 ops, 12 tensors\n"
    graph = read_graph(file)
    assert described("layered", "--nodes", 12, "-o", file) == {
        "graph": "layered-0",
        "ops": 12,
        "tensors": 12,
        "topology": topology_hash(graph),
        "seed": 0,
        "output": str(file),
    }
    assert gen("layered", "--nodes", 12, file, "--quiet").output == ""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["layered", "--nodes", "25"], ["synthetic", "--nodes", "20-30"]])
def test_data_set_folder_is_the_same_on_any_number_of_jobs(gen, described, tmp_path, words):
    options = ["--count", 15, "--seed", 3, "--split", "3-1-1"]
    printed = described(*words, tmp_path / "a", *options)
    gen(*words, tmp_path / "b", *options, "--jobs", 2)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    written = json.loads((tmp_path / "a" / "dataset.json").read_text())
    assert printed == {"output": str(tmp_path / "a"), **written}
    assert written["split"] == {"train": 9, "valid": 3, "test": 3}
    assert (written["graphs"], written["seed"], written["generator"]) == (15, 3, words[0])
    command = f"schedopt gen {shlex.join(words)} --count 15 --seed 3 --split 3-1-1"
    assert written["command"] == command
    assert str(tmp_path) not in json.dumps(written)
    gen(*shlex.split(command)[2:], tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "a")


def test_data_set_folder_without_split(gen, tmp_path):
    result = gen("layered", "--nodes", 10, "-n", 3, tmp_path / "set", "--format", "pbtxt")
    assert result.stderr == f"note: wrote {tmp_path / 'set'}: 3 graphs of 10 ops\n"
    files = find_graphs([tmp_path / "set"])
    assert [file.name for file in files] == [f"layered-10-000{number}.pbtxt" for number in (1, 2, 3)]
    description = json.loads((tmp_path / "set" / "dataset.json").read_text())
    assert description["files"] == {file.name: topology_hash(read_graph(file)) for file in files}
    assert "split" not in description


@pytest.mark.parametrize("generator", PARAMETERS)
def test_every_parameter_of_a_generator_reaches_its_graphs(described, tmp_path, generator):
    case = PARAMETERS[generator]
    printed = described(generator, tmp_path, *case["words"].split())
    assert printed["parameters"] == case["parameters"]
    assert printed.get("dedup") == case["dedup"]
    costs = getattr(read_graph(find_graphs([tmp_path])[0]), case["costs"])
    assert set(costs.tolist()) <= set(case["found"])


@pytest.mark.slow
def test_filters_of_generated_graphs(gen, described, run, tmp_path, monkeypatch):
    words = ["synthetic", "--nodes", 30, "-n", 4, "--model", "erdos-renyi"]
    kept = described(*words, tmp_path / "a", "--filter", 0.1, "--improvable", "memory")
    assert kept["command"].endswith("--filter 0.1 --improvable memory")
    gen(*words, tmp_path / "b", "--filter", 0.1, "--improvable", "memory", "--jobs", 2)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    monkeypatch.setattr(recipe, "TRIES", 5)
    result = run("gen", "synthetic", "--nodes", 5, tmp_path / "c", "--filter", 1)
    assert result.exit_code == 2
    assert "of 5 more draws 0 repeated one of them and 5 were filtered out: filter less" in result.stderr


@pytest.mark.slow
def test_augmenting_keeps_the_originals_and_splits_them_by_size(gen, tmp_path, originals):
    write_graph(read_graph(originals / "net3.pbtxt"), originals / "twin.pb")
    options = ["--copies", 2, "--seed", 1, "--split", "3-1-1"]
    result = gen("augment", originals, *options, "-o", tmp_path / "a")
    assert result.stderr.splitlines() == [
        "note: left out 1 of 11 graphs as duplicates: twin",
        f"note: wrote {tmp_path / 'a'}: 30 graphs of 10 to 19 ops (train 18, valid 6, test 6)",
    ]
    gen("augment", originals, *options, "-o", tmp_path / "b", "--jobs", 2)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    description = json.loads((tmp_path / "a" / "dataset.json").read_text())
    assert description["command"] == "schedopt gen augment GRAPHS --copies 2 --seed 1 --split 3-1-1"
    of_part = {}
    for file in find_graphs([tmp_path / "a"]):
        of_part.setdefault(topology_hash(read_graph(file)), set()).add(file.parent.name)
    assert all(len(parts) == 1 for parts in of_part.values())
    for source in description["sources"]:
        copy = f"{source['part']}/{source['file']}.pb.gz"
        assert description["files"][copy] == source["topology"]
        assert read_graph(tmp_path / "a" / copy) == read_graph(originals / f"{source['name']}.pbtxt")
        assert of_part[source["topology"]] == {source["part"]}


def test_one_noisy_copy_may_go_to_a_file_or_to_standard_output(gen, described, tmp_path, originals):
    original = originals / "net0.pbtxt"
    piped = parse_graph(gen("augment", original, "--copies", 1).stdout_bytes, "copy")
    assert piped.op_names == read_graph(original).op_names
    assert piped != read_graph(original)
    assert described("augment", original, "--copies", 1, "-o", tmp_path / "x.pb")["graph"] == "net0"
    assert read_graph(tmp_path / "x.pb") == piped


def test_graphs_without_room_are_left_out(gen, run, tmp_path, originals):
    write_graph(sketch("op -> 7", "single"), originals / "single.pb")
    result = gen("augment", originals, "--copies", 0, "--improvable", "memory", "-o", tmp_path / "set")
    assert "without room for improvement: " in result.stderr and "single" in result.stderr
    result = run("gen", "augment", originals / "single.pb", "--improvable", "memory", "-o", tmp_path / "none")
    assert (result.exit_code, "no graph has room for improvement" in result.stderr) == (2, True)


def test_architectures(gen, described, tmp_path):
    graph = parse_graph(gen("architecture", "resnet50", "--size", 64).stdout_bytes, "piped")
    file = tmp_path / "net.pb.gz"
    assert described("architecture", "resnet50", file, "--training", "--batch", 2, "--no-weights") == {
        "graph": "resnet50-training-b2",
        "ops": 512,
        "tensors": 512,
        "output": str(file),
    }
    assert graph.num_ops == 73 and graph.persistent.any()
    assert not read_graph(file).persistent.any()


def test_an_existing_data_set_is_replaced_only_when_asked(gen, run, tmp_path):
    gen("layered", "--nodes", 10, tmp_path / "set", "-n", 4)
    before = contents(tmp_path / "set")
    result = run("gen", "layered", "--nodes", 11, tmp_path / "set")
    assert result.exit_code == 2
    assert "holds a data set; give --overwrite to replace it, or name another folder" in result.stderr
    assert contents(tmp_path / "set") == before
    gen("layered", "--nodes", 11, tmp_path / "set", "--overwrite")
    assert len(find_graphs([tmp_path / "set"])) == 1


@pytest.mark.slow
def test_example_graphs_are_what_their_script_makes(gen, tmp_path):
    made = set()
    for line in (EXAMPLES / "make_graphs.sh").read_text().splitlines():
        if line.startswith("schedopt gen"):
            words = [word.replace("$out", str(tmp_path)) for word in shlex.split(line)]
            gen(*words[2:])
            name = Path(words[-1]).name
            assert read_graph(tmp_path / name) == read_graph(EXAMPLES / "graphs" / name)
            made.add(name)
    script = EXAMPLES / "experiments" / "real" / "import_graphs.sh"
    imported = script.read_text()  # by libraries that the tests do without
    assert made == {file.name for file in (EXAMPLES / "graphs").iterdir() if f"/{file.name}" not in imported}
