"""Seeds of tests that are repeated on random graphs: some are quick enough for every run, the rest are slow ones."""

import pytest


def seeds(count, quick):
    """Return `count` seeds, of which those from `quick` on are marked slow."""
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.slow) for seed in range(count)]
