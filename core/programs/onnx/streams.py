"""ONNX Runtime, set to run the nodes of a model on several streams: threads that share one memory.

Its parallel executor gives each stream of a partition a task of its own, which runs the stream's nodes in the file's
order, waits for results of other streams, and goes on in another task when they are there.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import ProgramError
from .nodes import node_names, reads
from .session import named, session_of, session_options

if TYPE_CHECKING:
    import onnxruntime
    from onnx import ModelProto, NodeProto

    from .program import OnnxProgram

PARTITION_OPTION = "session.node_partition_config_file"
WORKERS_PER_STREAM = 16
"""A task goes to a worker drawn at random, and waits if that one is busy: with one per stream, half of them would."""

Streams = Sequence[Sequence[str]]


def stream_options(
    streams: int = 1, partition: Path | None = None, profiles: str | None = None
) -> onnxruntime.SessionOptions:
    """Return settings for speed under which each stream runs its nodes in the file's order, on one thread each.

    As `session_options`, but with ONNX Runtime's own memory. Idle threads sleep: one that spins takes a core from one
    that works.

    Parameters
    ----------
    streams
        How many there are; one runs in sequence.
    partition
        The file that says which node is on which stream; without one several streams are ONNX Runtime's own.
    profiles
        A folder to write a profile into, which `kernel_spans` reads.
    """
    import onnxruntime

    options = session_options(profiles, keeps_memory=True)
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if streams > 1:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = workers(streams)
    if partition is not None:
        options.add_session_config_entry(PARTITION_OPTION, str(partition))
    return options


def workers(streams: int) -> int:
    """Return the inter-op threads for so many streams: a number of workers for each, and the caller, who waits."""
    return WORKERS_PER_STREAM * streams + 1


def partition_text(streams: Streams) -> str:
    """Return the file that puts nodes on streams, all of them on the CPU.

    Parameters
    ----------
    streams
        Names of nodes per stream; none of them empty, which ONNX Runtime does not survive.
    """
    document = {"type": "DeviceBasedPartitioner", "devices": ["0"] * len(streams), "streams": list(map(list, streams))}
    return json.dumps(document, indent=1) + "\n"


@contextmanager
def silenced() -> Iterator[None]:
    """Drop what ONNX Runtime prints on standard output while it plans the memory of several streams."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def seen_nodes(path: str, model: ModelProto, folder: Path) -> list[str]:
    """Return the names of a model's nodes as ONNX Runtime's partitioner sees them, of which it needs each on a stream.

    Raises
    ------
    ProgramError
        If ONNX Runtime cannot load the model, or has no partitioner.
    """
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "partition.json"
        try:
            with silenced():
                session_of(model, folder, stream_options(2, file))
        except ProgramError as error:
            raise ProgramError(f"{path}: {error}") from None
        if not file.exists():
            raise ProgramError(f"{path}: this build of ONNX Runtime knows no streams; those of pip do, from 1.14 on")
        streams: list[list[str]] = json.loads(file.read_text())["streams"]
    return [name for stream in streams for name in stream]


def streams_of_nodes(program: OnnxProgram, model: ModelProto, stream_of: dict[str, int]) -> list[list[str]]:
    """Return the nodes of each stream that a partition of a model needs, constant nodes with their first reader.

    Parameters
    ----------
    program
        Whose nodes they are.
    model
        What shall run; each of its nodes has a name.
    stream_of
        The stream of each node that runs, by its name.

    Raises
    ------
    ProgramError
        If ONNX Runtime runs other nodes than the model's.
    """
    placed = dict(stream_of)
    readers = {name: node for node in reversed(model.graph.node) for name in reads(node)}
    for node in reversed(model.graph.node):  # of constants that constants read, the reader is known first
        if node.name not in placed:
            reader = next((readers[name] for name in node.output if name in readers), None)
            placed[node.name] = 0 if reader is None else placed[reader.name]
    seen = seen_nodes(program.path, model, Path(program.path).parent)
    if len(other := set(seen) - set(placed)):
        missing = sorted(set(stream_of) - set(seen))
        name = missing[0] if missing else min(other)
        raise ProgramError(
            f"{program.path}: ONNX Runtime has no kernel for node '{name}' and runs {len(other)} others for it, which "
            "no stream can be given; replace it by the ops of its definition (onnx.inliner) and import that"
        )
    streams: list[list[str]] = [[] for _ in range(1 + max(stream_of.values()))]
    for name in seen:
        streams[placed[name]].append(name)
    return [stream for stream in streams if stream]


def with_names(program: OnnxProgram, nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Return copies of the file's nodes, each with the unique name that a partition can call it by."""
    names = dict(zip(map(_key, program.model.graph.node), node_names(program.model.graph), strict=True))
    return [named(node, names[_key(node)]) for node in nodes]


def _key(node: NodeProto) -> tuple[str, ...]:
    """Return what tells a node from the others of a graph: the values it gives, of which each has one producer."""
    return tuple(node.output)
