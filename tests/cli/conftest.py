from collections.abc import Callable
from pathlib import Path

import pytest
from models import small_graphs
from models.small_graphs import branches
from schedopt import CostGraph, write_graph
from typer.testing import CliRunner, Result


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run the command line; returns exit code, stdout, stderr."""
    from schedopt.cli.main import app

    return lambda *arguments, **options: CliRunner().invoke(app, [str(a) for a in arguments], **options)


@pytest.fixture(scope="session")
def diamond() -> CostGraph:
    """Two branches of one input: program order peaks at 10 + 8 + 8 bytes, branch by branch at 10 + 8 + 1."""
    return branches("diamond")


@pytest.fixture
def diamond_file(diamond: CostGraph, tmp_path: Path) -> Path:
    path = tmp_path / "diamond.pbtxt"
    write_graph(diamond, path)
    return path


@pytest.fixture(scope="session")
def training_step() -> CostGraph:
    """A training step whose every order takes 617 bytes: six layers, a loss, and the way back."""
    return small_graphs.training_step(6, runtime=2000.0, keep=7)
