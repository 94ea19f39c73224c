"""What it costs on this machine that an op reads what another stream gives."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .session import kernel_spans, session_of
from .streams import partition_text, stream_options

NODES = 40
RUNS = 10
_SIDE = 256  # some 200 us for a node, so that whoever waits for it sleeps, as in a plan


def measured_hand_over() -> float:
    """Measure a hand-over: a chain of products runs on one stream, and with every other one on a second stream.

    Returns
    -------
    float
        Microseconds: the median gap between two nodes on different streams, less that on one stream; never negative.
    """
    with tempfile.TemporaryDirectory() as temporary:
        partition = Path(temporary) / "partition.json"
        partition.write_text(
            partition_text([[f"node{number}" for number in range(first, NODES, 2)] for first in (0, 1)])
        )
        one, two = (_median_gap(streams, partition if streams > 1 else None, temporary) for streams in (1, 2))
    return max(0.0, two - one)


def _median_gap(streams: int, partition: Path | None, folder: str) -> float:
    """Return the median of the microseconds from the end of each node to the start of the next."""
    session = session_of(_chain(), Path(folder), stream_options(streams, partition, folder))
    for _ in range(RUNS):
        session.run(None, {"value0": np.ones((_SIDE, _SIDE), np.float32)})
    spans = kernel_spans(session)
    gaps = []
    for run in range(1, RUNS):
        nodes = spans[run * NODES : (run + 1) * NODES]
        for (_, start, length), (_, following, _) in pairwise(nodes):
            gaps.append(following - start - length)
    return statistics.median(gaps)


def _chain() -> ModelProto:
    identity = numpy_helper.from_array(np.eye(_SIDE, dtype=np.float32), "identity")
    nodes = [
        helper.make_node("MatMul", [f"value{number}", "identity"], [f"value{number + 1}"], f"node{number}")
        for number in range(NODES)
    ]
    ends = [helper.make_tensor_value_info(f"value{n}", TensorProto.FLOAT, (_SIDE, _SIDE)) for n in (0, NODES)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [identity])
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    print(json.dumps(measured_hand_over(**json.load(sys.stdin))))
