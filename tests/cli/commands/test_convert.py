"""`schedopt convert`: the graph stays what it is, and other formats are refused by name."""

import pytest
from schedopt import read_graph


@pytest.mark.parametrize("suffix", [".pb", ".pb.gz", ".pbtxt.gz", ".pbtxt"])
def test_convert_keeps_the_graph(run, diamond_file, diamond, tmp_path, suffix):
    target = tmp_path / f"copy{suffix}"
    assert run("convert", diamond_file, target).exit_code == 0
    assert read_graph(target) == diamond


def test_convert_writes_text_to_standard_output(run, diamond_file):
    assert run("convert", diamond_file).stdout == diamond_file.read_text()
