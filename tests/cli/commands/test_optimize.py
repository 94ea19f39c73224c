"""`schedopt optimize` from the command line: one command from a model to the same model in a better order."""

import json
import re
import subprocess
import sys

import onnx
import pytest
from models.onnx_models import branches, save


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def net(folder):
    return save(folder / "net.onnx", branches(4, 32))


@pytest.mark.slow
def test_an_onnx_model_in_one_command(run, net, folder):
    """What it writes is a model of the same graph, whose nodes are in the order found; apply needs no option."""
    done = run("optimize", "net.onnx", "-o", "out.onnx", "--no-measure", "--schedule", "s.json", "--plot", "m.svg")
    assert done.exit_code == 0, done.stderr
    assert "no order needs less than" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "wrote out.onnx: its results are bitwise those of net.onnx" in done.stderr
    assert {path.name for path in folder.iterdir()} == {"net.onnx", "out.onnx", "s.json", "m.svg"}
    steps = json.loads((folder / "s.json").read_text())["steps"]
    assert [node.name for node in onnx.load("out.onnx").graph.node] == [step["op"] for step in steps]
    again = run("apply", "net.onnx", "s.json", "-o", "again.onnx")
    assert again.exit_code == 0, again.stderr
    assert (folder / "again.onnx").read_bytes() == (folder / "out.onnx").read_bytes()


@pytest.mark.slow
def test_an_onnx_model_does_without_torch(net):
    code = """import sys; from schedopt.cli.start import main
sys.argv = "schedopt optimize net.onnx -o out.onnx --no-measure -q --evaluations 9".split()
try: main()
except SystemExit as end: assert not end.code
sys.exit("torch" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.slow
def test_a_training_step_of_pytorch_in_one_command(run, folder):
    arguments = ("optimize", "models.torch_models:branches_in_training", "-o", "out.pt2", "--training", "sgd")
    done = run(*arguments, "--no-measure", "--schedule", "s.json", "--json", "-m", "lpmf")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["imported"]["training"] == "sgd"
    assert document["orders"] == []
    assert document["lower_bound"] <= document["peak_memory"] < document["program_order_peak"]
    assert len(document["explanation"]) == 3
    again = run("apply", "models.torch_models:branches_in_training", "s.json", "-o", "again.pt2")
    assert again.exit_code == 0, again.stderr


@pytest.mark.slow
def test_the_limit_that_is_named_makes_ops_run_again(run, folder):
    """Eight layers keep eight activations in any order; a branch that recomputation cannot shrink names no limit."""
    code = "import torch\nfrom torch import nn\n\ndef model():\n"
    code += "    layers = [m for _ in range(8) for m in (nn.Linear(64, 64), nn.GELU())]"
    code += "\n    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 10)), (torch.randn(2048, 64),)\n"
    (folder / "deep.py").write_text(code)
    arguments = ("--training", "sgd", "--costs", "roofline", "--no-measure", "--quiet")
    done = run("optimize", "deep:model", "-o", "one.pt2", *arguments)
    assert done.exit_code == 0, done.stderr
    words = re.search(r"Less than any order: (--memory-limit \d+%) (--recompute)", done.stdout)
    again = run("optimize", "deep:model", "-o", "two.pt2", *arguments, *words[1].split(), words[2])
    assert again.exit_code == 0, again.stderr
    assert re.search(r"[1-9]\d* of \d+ ops run again to keep the memory limit", again.stdout)
    few = run("optimize", "models.torch_models:branches_in_training", "-o", "few.pt2", *arguments[2:])
    assert few.exit_code == 0 and "Less than any order" not in few.stdout


def test_a_limit_that_is_not_kept_writes_nothing(run, net, folder):
    options = ("--memory-limit", "1KiB", "--costs", "roofline", "--no-measure", "--quiet")
    done = run("optimize", "net.onnx", "-o", "out.onnx", *options)
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    assert "the memory limit of 1.00 KiB is not kept: no order needs" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["net.onnx"]
