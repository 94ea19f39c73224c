"""Parameters: what a field may be is checked when they are built, in the same words wherever they are read from."""

import dataclasses
from typing import Literal

import pytest
from schedopt.core.base.errors import UsageError
from schedopt.core.search.parameters import Parameters, from_texts, parameter
from schedopt.core.search.settings import from_plain


@dataclasses.dataclass(frozen=True)
class Some(Parameters):
    count: int = parameter(3, "a count", low=1)
    share: float = parameter(0.5, "a share", low=0, high=1)
    kind: Literal["one", "two"] = parameter("one", "a kind")
    path: str = parameter("", "a file")


def test_texts_become_values():
    texts = {"count": "7", "share": "1e-3", "kind": "two", "path": "7"}
    assert from_texts(Some, texts, "m") == Some(7, 0.001, "two", "7")
    assert from_texts(Some, {}, "m") == Some()


@pytest.mark.parametrize(
    ("name", "text", "value", "words"),
    [
        ("count", "0", 0, "count must be at least 1, not 0"),
        ("share", "2", 2.0, "share must be from 0 to 1, not 2.0"),
        ("share", "nan", float("nan"), "share must be from 0 to 1, not nan"),
        ("kind", "three", "three", "kind must be one of one, two, not 'three'"),
    ],
)
def test_a_value_is_refused_in_the_same_words_everywhere(name, text, value, words):
    reads = (
        lambda: Some(**{name: value}),
        lambda: from_texts(Some, {name: text}, "m"),
        lambda: from_plain(Some, {name: value}, "file"),
    )
    for read in reads:
        with pytest.raises(UsageError) as error:
            read()
        assert str(error.value).endswith(words)


@pytest.mark.parametrize(
    ("kind", "texts", "words"),
    [
        (Some, {"counts": "1"}, "method 'm' has no parameter 'counts'; did you mean count?"),
        (Parameters, {"count": "1"}, "method 'm' has no parameter 'count'; it has none"),
        (Some, {"count": "1.5"}, "parameter count of 'm' must be a whole number, not '1.5'"),
        (Some, {"share": "half"}, "parameter share of 'm' must be a number, not 'half'"),
    ],
)
def test_a_text_that_is_no_value_is_named_with_its_parameter(kind, texts, words):
    with pytest.raises(UsageError) as error:
        from_texts(kind, texts, "m")
    assert str(error.value) == words
