"""Slots of tensors along an order, against which tensors are needed when."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt.core.kernels.graph_arrays import graph_arrays
from schedopt.core.kernels.placements.routes import NOBODY, begin_step, end_step, new_route, start_route


def needed_after(plain, done):
    """Tensors that some op, or a view that is needed, still reads; or that are final."""

    def is_needed(tensor):
        views = [view for view, base in plain.alias.items() if base == tensor]
        unread = plain.readers[tensor] <= done and all(view[0] in done for view in views)
        return not unread or tensor in plain.final or any(is_needed(view) for view in views)

    return {tensor for tensor in plain.tensors if tensor[0] in done and is_needed(tensor)}


@pytest.mark.parametrize("seed", seeds(40, quick=4))
def test_every_needed_tensor_has_a_slot_to_itself(seed):
    rng = np.random.default_rng([61, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 16)))
    order = naive.random_order(rng, plain)
    arrays = graph_arrays(graph, 2)
    route, slots = new_route(arrays, np.array(order, np.int32))
    index, most = plain.index, 1
    start_route(arrays, route)
    route.held[:] = NOBODY
    for step, op in enumerate(order):
        dying = begin_step(arrays, route, step)
        before = needed_after(plain, set(order[:step])) | set(plain.outputs[op])
        assert {(route.slot[index[t]], index[t]) for t in before} == {
            (slot, tensor) for slot, tensor in enumerate(route.held.tolist()) if tensor != NOBODY
        }
        most = max(most, len(before))
        end_step(route, dying)
        held = {tensor for tensor in route.held.tolist() if tensor != NOBODY}
        assert held == {index[t] for t in needed_after(plain, set(order[: step + 1]))}
    assert slots == most
