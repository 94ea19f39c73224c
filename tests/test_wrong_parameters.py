"""Parameters of generators, networks and training that make no sense are one sentence: `wrong_parameters.yaml`."""

import importlib
from pathlib import Path

import pytest
import yaml
from schedopt import UsageError

TABLE = yaml.safe_load(Path(__file__).with_name("wrong_parameters.yaml").read_text())
CASES = [(made, values, message) for made, rows in TABLE.items() for values, message in rows]


@pytest.mark.parametrize(("made", "values", "message"), CASES)
def test_parameters_that_make_no_sense_are_refused(made, values, message):
    module, _, name = made.partition(":")
    make = getattr(importlib.import_module(f"schedopt.{module}"), name)
    with pytest.raises(UsageError, match=message) as caught:
        make(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    assert "\n" not in str(caught.value)
