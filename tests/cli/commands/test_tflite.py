"""The command line on a TFLite file: its notes, exit codes, and what is refused."""

import json

import pytest

pytest.importorskip("tflite")
pytest.importorskip("flatbuffers")

from models.tflite_models import branches


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(branches().build())
    return path


def test_a_truncated_file_is_one_sentence(run, model):
    model.write_bytes(model.read_bytes()[:300])
    for command in (["import", model, "-o", model.with_suffix(".pb")], ["solve", model], ["fit", model, "-m", "1MiB"]):
        done = run(*command)
        assert done.exit_code == 2
        assert done.stderr.strip().splitlines()[-1].startswith(f"error: {model}: not a TFLite model, or truncated: ")


def test_the_model_is_never_overwritten(run, model):
    done = run("optimize", model, "-o", model)
    assert done.exit_code == 2
    done = run("optimize", model, "-o", model.with_suffix(".onnx"))
    assert "a TFLite model is written to a file whose name must end in .tflite" in done.stderr


def test_fit_takes_the_memory_once(run, diamond_file):
    assert json.loads(run("fit", diamond_file, "--sram", "1K", "--json").stdout)["memory"] == 1024
    assert json.loads(run("fit", diamond_file, "--sram", "20", "--json").stdout)["memory"] == 20
    for wrong in ([], ["--sram", "1K", "--memory", "1KiB"]):
        done = run("fit", diamond_file, *wrong)
        assert done.exit_code == 2
        assert "give the memory once, as --memory 8GiB or --sram 256K, or a --machine" in done.stderr


def test_a_batch_is_refused(run, model):
    done = run("fit", model, "--sram", "64K", "--batch", "batch")
    assert done.exit_code == 2
    assert "a TFLite model has fixed sizes; there is no batch to find" in done.stderr
