"""The pytest fixture `assert_peak`, which pytest finds by an entry point; nothing heavy is loaded before it is used."""

from collections.abc import Callable

import pytest


@pytest.fixture(name="assert_peak")
def fixture() -> Callable[..., int]:
    """Give `schedopt.testing.assert_peak`, which fails if a call needs more memory than a limit."""
    from .testing import assert_peak

    return assert_peak
