"""`schedopt fit`: what it prints, its exit codes, ONNX's symbolic dimensions, runs that confirm, and bad input."""

import json

import pytest
from models.small_graphs import sketch
from schedopt.core.files.costgraph import write_graph
from schedopt.core.graph.annotations import Annotations

MODEL = "models.torch_models:batched"


def test_it_fits_in_another_order(run, diamond_file):
    done = run("fit", diamond_file, "--memory", 20)
    assert done.exit_code == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in done.stdout.splitlines()]
    assert lines[0] == "diamond: does it fit into 20 B?"
    assert "as it is no (proven) 26 B 26 B" in lines
    assert "in another order yes 19 B 19 B" in lines
    assert lines[-1] == "It fits in another order: 19 B of 20 B."


def test_it_does_not_fit(run, diamond_file):
    done = run("fit", diamond_file, "--memory", 17, "--json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert (document["model"], document["memory"], document["fits"]) == ("diamond", 17, False)
    assert [way["way"] for way in document["ways"]] == ["as it is", "in another order", "with recomputation"]
    assert all(way["lower_bound"] > 17 for way in document["ways"])


@pytest.fixture
def symbolic(tmp_path):
    """An ONNX file whose batch is a symbolic dimension."""
    import onnx
    from models.onnx_models import model_of, save, value

    nodes = [onnx.helper.make_node("Exp", ["x"], ["y"]), onnx.helper.make_node("Exp", ["y"], ["z"])]
    return save(tmp_path / "net.onnx", model_of(nodes, [value("x", ["batch", 256])], [value("z", ["batch", 256])]))


def test_the_largest_batch_of_an_onnx_file(run, symbolic):
    done = run("fit", symbolic, "--memory", "30KiB", "--batch", "batch", "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert [row["batch"] for row in document["batches"]] == [10, 10], "three tensors of 1 KiB for each"
    assert document["batches"][0]["peak_memory"] == 30 * 1024
    assert document["batches"][0]["next_peak_memory"] == 33 * 1024
    done = run("fit", symbolic, "--memory", "1KiB", "--batch", "batch")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "It does not fit with any batch."


@pytest.mark.slow
def test_a_run_confirms_it(run):
    done = run("fit", MODEL, "--memory", "1MiB", "--confirm", "--json")
    assert done.exit_code == 0, done.stderr
    ways = json.loads(done.stdout)["ways"]
    assert [way["way"] for way in ways] == ["as it is", "as traced, in program order", "in another order"]
    assert all(way["measured_peak"] >= way["lower_bound"] for way in ways)
    done = run("fit", MODEL, "--memory", "200KiB", "--batch", "batch", "--confirm", "--json")
    assert done.exit_code == 0, done.stderr
    assert all(row["measured_peak"] >= 100_000 for row in json.loads(done.stdout)["batches"])


def test_a_peak_is_locked_and_a_larger_one_fails(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = "import torch\n\ndef model(n=2):\n    return lambda x: [x + 1 for _ in range(n)], torch.ones(1000)\n"
    (tmp_path / "peaked.py").write_text(text)
    assert run("fit", "peaked:model", "--lock", "peaks.json").exit_code == 0
    same = run("fit", "peaked:model", "--check", "peaks.json")
    assert (same.exit_code, same.stdout.endswith("; as locked\n")) == (0, True), same.output
    peaks = (tmp_path / "peaks.json").read_text()
    (tmp_path / "peaks.json").write_text(peaks.replace("peaked:model", "peaked:model n=3"))
    larger = run("fit", "peaked:model", "--check", "peaks.json", "--shape", "n=3")
    assert larger.exit_code == 1
    assert "│ add#3:0" in larger.stdout
    assert "3.91 KiB more than locked" in larger.stdout
    assert (tmp_path / "peaks.json").read_text() != peaks, "nothing is written"
    missing = run("fit", "peaked:model", "--check", "peaks.json")
    assert (missing.exit_code, "it has no peak of 'peaked:model'; --lock writes it" in missing.stderr) == (2, True)


def test_the_answer_itself_says_what_it_leaves_out(run, tmp_path, monkeypatch):
    """So it does with `--quiet`, of a graph's file as of a model, and of a call whose values are guessed."""
    write_graph(sketch("op -> 8", "half", Annotations(left_out=("the casts", "weights"))), tmp_path / "half.pb")
    asked = ("fit", tmp_path / "half.pb", "--memory", 9, "--quiet")
    shown = run(*asked).stdout
    assert "│ as it is         │ yes (predicted) │       8 B │" in shown
    assert shown.endswith("It fits as it is: 8 B of 9 B (predicted, without the casts and weights).\n")
    assert json.loads(run(*asked, "--json").stdout)["left_out"] == ["the casts", "weights"]
    monkeypatch.syspath_prepend(tmp_path)
    text = "import torch\nw = torch.ones(1)\n\ndef model():\n    return lambda x: x + 1 if w > 0 else x, w.clone()\n"
    (tmp_path / "guessed.py").write_text(text)
    asked = ("fit", "guessed:model", "--lock", tmp_path / "peaks.json", "--quiet")
    assert "(if the value read at guessed.py:5 is 0)" in run(*asked).stdout


def test_it_takes_the_memory_once(run, diamond_file):
    assert json.loads(run("fit", diamond_file, "--sram", "1K", "--json").stdout)["memory"] == 1024
    assert json.loads(run("fit", diamond_file, "--sram", "20", "--json").stdout)["memory"] == 20
