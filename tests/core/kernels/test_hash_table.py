"""The hash table against a dict."""

import numpy as np
import pytest
from schedopt.core.kernels.hash_table import slot_of


@pytest.mark.parametrize("low_bits", [2, 64])
def test_hashes_are_found_where_they_were_put(low_bits):
    """Also when most of them belong in the same slots, and past the table's end."""
    rng = np.random.default_rng([50, low_bits])
    hashes = np.unique(rng.integers(0, 2**64, 40, dtype=np.uint64))
    if low_bits == 2:
        hashes |= np.uint64(0b111100)
    hashes = np.unique(hashes)
    table, known = np.full(64, -1, np.int32), {}
    for place in rng.permutation(len(hashes)):
        assert table[slot_of(table, hashes, hashes[place])] == -1
        table[slot_of(table, hashes, hashes[place])] = known[hashes[place]] = place
        for key in hashes:
            assert table[slot_of(table, hashes, key)] == known.get(key, -1)
