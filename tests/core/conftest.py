"""The graph that tests of results and of the front door share."""

import pytest
import schedopt
from models import small_graphs


@pytest.fixture
def diamond():
    return small_graphs.diamond()


@pytest.fixture
def diamond_file(diamond, tmp_path):
    path = tmp_path / "graphs" / "diamond.pbtxt"
    path.parent.mkdir()
    schedopt.write_graph(diamond, path)
    return path
