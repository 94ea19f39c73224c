"""Graphs and weights for the scripts in `examples/experiments`."""

import pytest
from models.examples import EXAMPLES
from models.networks import write_regal_weights
from schedopt.policies.regal.actions import ActionParameters


@pytest.fixture
def few(tmp_path):
    """Return a folder of two small graphs."""
    folder = tmp_path / "few"
    folder.mkdir()
    for name in ("unet.pb.gz", "layered-50.pbtxt"):
        (folder / name).symlink_to(EXAMPLES / "graphs" / name)
    return folder


@pytest.fixture
def weights(tmp_path):
    """Return a folder of small networks for the makespan, as if they had been shipped."""
    folder = tmp_path / "weights"
    folder.mkdir()
    write_regal_weights(folder / "regal-runtime.safetensors")
    write_regal_weights(folder / "regal-runtime-transfers.safetensors", actions=ActionParameters(transfers=4))
    write_regal_weights(folder / "gas-runtime.safetensors", encoder="lstm")
    return folder
