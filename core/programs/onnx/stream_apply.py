"""An ONNX file and, beside it, the file that tells ONNX Runtime which of its nodes run on which stream."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ...files.atomic import check_writable, write_atomically
from ...graph.graph import CostGraph
from ..schedule_order import check_order
from ..stream_plans import StreamPlan
from .apply import check_equal, copy_external_data, reorder
from .program import OnnxProgram
from .streams import partition_text, silenced, stream_options, streams_of_nodes, with_names


def partition_file(output: str) -> Path:
    """Return the name of the partition of a model that is written: `net.onnx` has `net.partition.json`."""
    return Path(output).with_suffix(".partition.json")


def write_streams(program: OnnxProgram, graph: CostGraph, plan: StreamPlan, output: str) -> Path:
    """Write an ONNX file with its nodes in the order of a plan, and its partition into streams; return the latter.

    Every node has a name in the file, by which the partition calls it. Before anything is written, the original runs
    in its file's order and the new model on its streams, with the same random inputs and bitwise equal results.

    Parameters
    ----------
    program, graph
        What to write, and its graph. Sizes that are symbolic stay so in the file.
    plan
        What each stream runs.
    output
        The `.onnx` file to write.

    Raises
    ------
    FormatError, ProgramError
        If ONNX Runtime cannot run the model on streams, or a file cannot be written.
    ScheduleError
        If this is no order of the model, or its results would differ; then nothing is written.
    """
    partition = partition_file(output)
    check_writable(str(partition))
    check_order(graph, plan.order)
    model = reorder(program, plan.order)
    nodes = with_names(program, model.graph.node)
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    stream_of = dict(zip(program.names, plan.stream_of, strict=True))
    text = partition_text(streams_of_nodes(program, model, stream_of))
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / partition.name
        file.write_text(text)
        with silenced():
            check_equal(program, model, (stream_options(), stream_options(plan.count, file)))
    copy_external_data(program, Path(output))
    write_atomically(output, model.SerializeToString())
    write_atomically(str(partition), text)
    return partition
