"""Names that people give: what they may have meant."""

import pytest
from schedopt.core.base.names import did_you_mean, nearest, unknown

METHODS = ("auto", "approximate-dp", "brkga", "topoformer")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("topofrmer", "topoformer"),
        ("Topoformer", "topoformer"),
        ("approximate_dp", "approximate-dp"),
        ("BRKGA ", "brkga"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_what_was_meant(given, meant):
    assert nearest(given, METHODS) == meant


def test_the_error_asks_for_the_nearest_name_or_shows_all():
    assert str(unknown("method", "topofrmer", METHODS)) == "unknown method 'topofrmer'; did you mean topoformer?"
    assert str(unknown("method", "x", METHODS)).endswith("choose from auto, approximate-dp, brkga, topoformer")
    assert str(unknown("task", "x", ("memory", "runtime"))) == "unknown task 'x'; choose memory or runtime"
    assert str(unknown("task", "makespan", ("memory", "runtime"))) == "unknown task 'makespan'; did you mean runtime?"
    assert (did_you_mean("Lasy", ["queue", "lazy"]), did_you_mean("x", METHODS)) == ("; did you mean lazy?", "")
