"""The command line on a TFLite file: its notes, exit codes, and what is refused."""

import json

import pytest
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


def test_fit_takes_the_memory_once(run, diamond_file):
    assert json.loads(run("fit", diamond_file, "--sram", "1K", "--json").stdout)["memory"] == 1024
    assert json.loads(run("fit", diamond_file, "--sram", "20", "--json").stdout)["memory"] == 20
