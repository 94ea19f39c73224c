"""Options made of a dataclass: their defaults mean the defaults of its fields, and every field has one."""

import dataclasses
import inspect
from typing import get_args

import pytest
import typer
from schedopt import Parameters, UsageError, parameter
from schedopt.cli.made_options import Notation, Written, options_of, parameters_of, with_options
from schedopt.cli.main import app
from schedopt.datasets.layered import LayeredParameters
from schedopt.datasets.synthetic import SyntheticParameters


@dataclasses.dataclass(frozen=True)
class Pair(Parameters):
    first: int = parameter(2, "the first, a number", low=1)
    low: float = parameter(0.5, "the lower end", low=0, high=1)
    high: float = parameter(0.75, "the upper end", low=0, high=1)


WRITTEN = [
    Written("ends", ("low", "high"), Notation(lambda text, what: map(float, text.split("-")), "{:g}-{:g}".format)),
    Written("one", ("first",)),
]


def test_a_field_is_an_option_and_fields_may_share_one():
    first, ends = options_of(Pair, WRITTEN)
    assert (first.name, first.default, ends.name, ends.default) == ("one", 2, "ends", "0.5-0.75")
    kind, info = get_args(first.annotation)
    assert (kind, info.help, info.metavar) == (int, "The first, a number.", "<int range> [from 1]")
    assert get_args(ends.annotation)[1].help == "The lower end."


def test_parameters_are_read_as_they_are_written_and_checked_by_the_dataclass():
    assert parameters_of(Pair, WRITTEN, {"one": 3, "ends": "0.25-1", "other": 7}) == Pair(3, 0.25, 1.0)
    with pytest.raises(UsageError, match="first must be at least 1, not 0"):
        parameters_of(Pair, WRITTEN, {"one": 0, "ends": "0-1"})


def test_made_options_stand_where_they_are_wanted():
    def command(ctx: typer.Context, before: int = 0, after: int = 1, **given: object) -> None: ...

    made = with_options(command, {"before": options_of(Pair, WRITTEN)}, "What it does.")
    assert list(inspect.signature(made).parameters) == ["ctx", "before", "one", "ends", "after"]
    assert made.__doc__ == "What it does."


@pytest.mark.parametrize(("name", "kind"), [("layered", LayeredParameters), ("synthetic", SyntheticParameters)])
def test_defaults_of_a_generator_are_those_of_its_parameters(name, kind, monkeypatch):
    """The texts of the defaults are read back, so they cannot say something else than the fields."""
    from schedopt.cli.commands import gen as family

    found = []
    monkeypatch.setattr(family, "_generate", lambda ctx, parameters, *keep: found.append(parameters))
    from typer.testing import CliRunner

    assert CliRunner().invoke(app, ["gen", name]).exit_code == 0
    assert found == [kind()]
