from collections.abc import Callable
from pathlib import Path

import pytest
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
    builder = GraphBuilder("diamond")
    builder.add_op("start", outputs=[10], runtime=1)
    builder.add_op("wide1", inputs=[(0, 0)], outputs=[8], runtime=2)
    builder.add_op("wide2", inputs=[(0, 0)], outputs=[8], runtime=2)
    builder.add_op("narrow1", inputs=[(1, 0)], outputs=[1], runtime=1)
    builder.add_op("narrow2", inputs=[(2, 0)], outputs=[1], runtime=1)
    builder.add_op("join", inputs=[(3, 0), (4, 0)], outputs=[1], final=True, runtime=1)
    return builder.build()


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
