"""What tests are repeated on: random graphs and models of which some are quick enough for every run, the rest slow."""

import pytest


def seeds(count, quick):
    """Return `count` seeds, of which those from `quick` on are marked slow."""
    return mostly_slow(range(count), range(quick))


def mostly_slow(values, quick):
    """Return values, of which all but the quick ones are marked slow."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
