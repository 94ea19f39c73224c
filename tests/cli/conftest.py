from collections.abc import Callable
from pathlib import Path

import pytest
from models.small_graphs import sketch
from schedopt.core.files.costgraph import write_graph
from schedopt.core.graph.builder import GraphBuilder
from schedopt.core.graph.graph import CostGraph
from typer.testing import CliRunner, Result


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run the command line; returns exit code, stdout, stderr."""
    from schedopt.cli.main import app

    return lambda *arguments, **options: CliRunner().invoke(app, [str(a) for a in arguments], **options)


@pytest.fixture(scope="session")
def diamond() -> CostGraph:
    """Two branches of one input: program order peaks at 10 + 8 + 8 bytes, branch by branch at 10 + 8 + 1."""
    return sketch(
        "start -> 10 us=1; wide1: start -> 8 us=2; wide2: start -> 8 us=2; narrow1: wide1 -> 1 us=1; "
        "narrow2: wide2 -> 1 us=1; join: narrow1 narrow2 -> 1f us=1",
        "diamond",
    )


@pytest.fixture
def diamond_file(diamond: CostGraph, tmp_path: Path) -> Path:
    path = tmp_path / "diamond.pbtxt"
    write_graph(diamond, path)
    return path


@pytest.fixture(scope="session")
def training_step() -> CostGraph:
    """A training step whose every order takes 610 bytes: six layers, a loss, and the way back."""
    builder = GraphBuilder("step")
    made = [builder.add_op("layer0", outputs=[100], runtime=2000.0, persistent=7)]
    for k in range(1, 6):
        made.append(builder.add_op(f"layer{k}", inputs=[(made[-1], 0)], outputs=[100], runtime=2000.0))
    back = builder.add_op("loss", inputs=[(made[-1], 0)], outputs=[10], runtime=2000.0)
    for k in reversed(range(6)):
        back = builder.add_op(f"back{k}", inputs=[(back, 0), (made[k], 0)], outputs=[10], runtime=2000.0)
    return builder.build()
