"""Every way to use a command badly is one sentence, exits 2, and leaves no file: those of `bad_usage.yaml`."""

import shlex
from pathlib import Path

import pytest
import schedopt
import yaml
from models import onnx_models, tflite_models
from onnx import helper
from schedopt.core.files.costgraph import format_graph

TABLE = yaml.safe_load(Path(__file__).with_name("bad_usage.yaml").read_text())
CASES = [(shared.replace("*", row).strip(), said) for shared, rows in TABLE.items() for row, said in rows.items()]
EXAMPLE = Path(__file__).parents[2] / "examples" / "graphs" / "layered-50.pbtxt"


@pytest.fixture(scope="module")
def files(tmp_path_factory, diamond, training_step):
    """Return a folder of the files that the command lines name."""
    folder = tmp_path_factory.mktemp("files")
    made = {"diamond": diamond, "graphs/one": diamond, "step": training_step, "more/one": training_step}
    for name, graph in made.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.pbtxt").write_bytes(format_graph(graph))
    schedopt.solve(diamond, "input").save(folder / "best.json")
    (folder / "never.dot").write_text("not DOT at all")
    onnx_models.save(folder / "net.onnx", onnx_models.branches(1, 8))
    inputs, outputs = ([onnx_models.value(name, ["batch", 256])] for name in "xy")
    symbolic = onnx_models.model_of([helper.make_node("Exp", ["x"], ["y"])], inputs, outputs)
    onnx_models.save(folder / "symbolic.onnx", symbolic)
    (folder / "net.tflite").write_bytes(tflite_models.branches().build())
    return folder


@pytest.mark.parametrize(("words", "said"), CASES, ids=[words for words, _ in CASES])
def test_bad_usage_is_one_sentence_and_exit_2(run, files, monkeypatch, words, said):
    monkeypatch.chdir(files)
    before = {path: path.stat().st_mtime_ns for path in files.rglob("*")}
    result = run(*(EXAMPLE if word == "EXAMPLE" else word for word in shlex.split(words)))
    assert (result.exit_code, result.stdout) == (2, "")
    errors = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert len(errors) == 1 and errors[0].startswith("error: ")
    assert all(part in errors[0] for part in said.split(" ... "))
    assert {path: path.stat().st_mtime_ns for path in files.rglob("*")} == before
