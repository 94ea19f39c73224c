import numpy as np
import pytest
from models.seeds import seeds
from naive.arenas import first_fit as naive_first_fit
from schedopt.core.kernels.first_fit import first_fit, new_placing


def random_pieces(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    lower = rng.integers(0, 20, count)
    sizes = rng.integers(1, 30, count)
    return lower, lower + rng.integers(1, 10, count), sizes, rng.choice([1, 4, 8], count), rng.permutation(count)


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_it_is_its_plain_twin(seed):
    *pieces, order = random_pieces(seed)
    placing = new_placing(*pieces)
    highest = first_fit(placing, order.astype(np.int32), 2**62)
    offsets = naive_first_fit(*(column.tolist() for column in pieces), order.tolist())
    assert placing.offsets.tolist() == offsets
    assert highest == max(offset + size for offset, size in zip(offsets, pieces[2].tolist(), strict=True))


def test_it_ends_at_the_first_piece_above_the_limit():
    columns = np.zeros(3, np.int64), np.full(3, 5), np.array([10, 20, 30]), np.ones(3, np.int64)
    placing = new_placing(*columns)
    assert first_fit(placing, np.arange(3, dtype=np.int32), 25) == 30
    assert placing.offsets.tolist() == [0, 10, 0]
