"""Values that an option cannot take: the sentence names the value, and what may stand there."""

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--format tabel", "must be one of table, order, json, not 'tabel'; did you mean table?"),
        ("--format zz", "must be one of table, order, json, not 'zz'"),
        ("--pins from", "must be from-graph, not 'from'"),
        ("--devices x", "must be a whole number, not 'x'"),
        ("--devices 1.5", "must be a whole number, not '1.5'"),
        ("--width x", "must be a whole number, not 'x'"),
    ],
)
def test_a_value_that_cannot_be(run, diamond_file, words, said):
    result = run("solve", diamond_file, *words.split(), env={"COLUMNS": "200"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert f": {said} " in result.stderr
