"""The arrays of a graph, and how many transfers and cells they make."""

from types import SimpleNamespace

import naive
import numpy as np
import pytest
from schedopt import UsageError
from schedopt.core.kernels.graph_arrays import graph_arrays, most_transfers


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("devices", [1, 2, 5])
def test_no_placement_needs_more_transfers(seed, devices):
    rng = np.random.default_rng([52, seed])
    graph, plain = naive.random_graph(rng, 12)
    most = most_transfers(graph_arrays(graph, devices), devices)
    for _ in range(20):
        placement = rng.integers(0, devices, 12).tolist()
        assert len(naive.needed_transfers(plain, placement)) <= most
    if devices == 2:
        # A tensor whose reader is elsewhere is one transfer, whatever the others do.
        assert most == sum(bool(plain.readers[t]) for t in plain.tensors)


def test_too_many_cells_are_refused_by_name():
    huge = SimpleNamespace(name="huge", num_ops=10, num_tensors=2**25)
    with pytest.raises(UsageError, match=r"huge: too many tensors times devices \(33554432 x 64\)"):
        graph_arrays(huge, 64)
