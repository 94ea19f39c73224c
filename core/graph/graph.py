"""The computation graph: ops with costs and tensors with bytes, in immutable arrays."""

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import BoolArray, FloatArray, IndexArray, IntArray, csr, distinct_pairs, frozen, pairs_rise
from .annotations import NO_ANNOTATIONS, Annotations

_NOT_COMPARED = {"name", "op_names", "input_order", "annotations"}


class Op(NamedTuple):
    """An op of a graph, as `CostGraph.ops` lists them."""

    name: str
    id: int  # in the file
    # microseconds; bytes while it runs, and throughout
    runtime: float
    workspace: int
    persistent: int
    once: bool  # whether it may not run again
    # names of tensors: what it reads, repeats included, in the order of its arguments, then control; what it makes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Tensor(NamedTuple):
    """A tensor of a graph, as `CostGraph.tensors` lists them."""

    name: str  # `op:port`, or `op:control`
    size: int  # bytes
    # whether it is kept to the end; whether it is no data, but an order
    final: bool
    control: bool
    view_of: str  # the tensor whose memory it shares; empty if it has its own
    # the op that makes it, and those that read it
    producer: str
    consumers: tuple[str, ...]


class Buffers(NamedTuple):
    """A graph on one device, reduced to the parts of its memory: all views of a tensor share its buffer."""

    # per buffer, shape `(buffers,)`: bytes, the op that allocates it, whether it is kept to the end
    size: IntArray
    producer: IndexArray
    is_final: BoolArray
    # CSR buffer -> the distinct ops that read it or a view of it
    user_ptr: IndexArray
    users: IndexArray
    # CSR op -> the distinct buffers it reads
    used_ptr: IndexArray
    used: IndexArray
    made_ptr: IndexArray  # buffers are sorted by producer: those of op `v` are `made_ptr[v]` up to `made_ptr[v + 1]`
    own: IntArray  # per op, shape `(ops,)`: bytes it allocates for outputs
    workspace: IntArray  # per op: temporary bytes while it runs
    # CSR op -> distinct ops it waits for, and that wait for it
    predecessor_ptr: IndexArray
    predecessors: IndexArray
    successor_ptr: IndexArray
    successors: IndexArray


def unread_bytes(b: Buffers) -> IntArray:
    """Return the bytes that each op allocates and that are freed at once, for nothing reads or keeps them; `(ops,)`."""
    unread = (np.diff(b.user_ptr) == 0) & ~b.is_final
    total: IntArray = np.zeros(len(b.own), np.int64)
    np.add.at(total, b.producer[unread], b.size[unread])
    return total


@dataclass(frozen=True, eq=False, repr=False)
class CostGraph:
    """A computation graph with costs; build it with `GraphBuilder`, which checks every rule.

    Sizes are bytes (int64), runtimes microseconds (float64). The tensors of an op are contiguous and in
    port order; an op with control dependents has one more, its zero-byte control tensor (REGAL A.2), last.

    Parameters
    ----------
    name
        Name of the graph in reports, usually the stem of its file.
    op_names, op_ids
        Per op: its unique name, and its id in the file.
    runtime, workspace, persistent
        Per op, shape `(ops,)`: microseconds, temporary bytes, bytes resident throughout.
    output_ptr
        Shape `(ops + 1,)`: the tensors of op `v` are `output_ptr[v]` up to `output_ptr[v + 1]`.
    tensor_size, alias_of, is_final, is_control
        Per tensor, shape `(tensors,)`: bytes; the tensor it is a view of, or -1; kept to the end; control.
    read_ptr, read_tensor
        The inputs of each op as written, repeats included: data in argument order, then control.
    input_order
        Shape `(ops,)`: the ops in the order of the file, or the nearest one in which no op comes before its inputs.
    runs_once
        Per op, shape `(ops,)`: whether it may not run again, as it writes in place or draws random numbers.
    annotations
        Origins of the ops, and residents; none by default. They do not count when graphs are compared.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("chain")
    >>> source = builder.add_op("source", outputs=[1024, 16])
    >>> sink = builder.add_op("sink", inputs=[(source, 1)], outputs=[2048])
    >>> graph = builder.build()
    >>> graph.op_names, graph.tensor_size.tolist(), graph.tensor_name(1)
    (('source', 'sink'), [1024, 16, 2048], 'source:1')
    >>> [(op.name, op.inputs) for op in graph.ops], graph.tensors[1].consumers
    ([('source', ()), ('sink', ('source:1',))], ('sink',))
    """

    name: str
    op_names: tuple[str, ...]
    op_ids: IntArray
    runtime: FloatArray
    workspace: IntArray
    persistent: IntArray
    output_ptr: IndexArray
    tensor_size: IntArray
    alias_of: IndexArray
    is_final: BoolArray
    is_control: BoolArray
    read_ptr: IndexArray
    read_tensor: IndexArray
    input_order: IndexArray
    runs_once: BoolArray
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        """Let no array be written through the graph; kernels would also be compiled again for arrays that may be."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and value.flags.writeable:
                view = value.view()
                view.setflags(write=False)
                vars(self)[name] = view

    def __getstate__(self) -> dict[str, Any]:
        """Return the content of a copy: no derived fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up a copy."""
        vars(self).update(state)
        self.__post_init__()

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Every op with its costs, inputs and outputs, in the order of the file."""
        names = self.tensor_names
        columns = (self.op_ids, self.runtime, self.workspace, self.persistent, self.runs_once)
        reads = (tuple(names[t] for t in read.tolist()) for read in np.split(self.read_tensor, self.read_ptr[1:-1]))
        made = (tuple(names[t] for t in self.outputs(op)) for op in range(self.num_ops))
        rows = zip(self.op_names, *(column.tolist() for column in columns), reads, made, strict=True)
        return tuple(map(Op._make, rows))

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor with its bytes, its maker and its readers: by op, then by port."""
        names, ops = self.tensor_names, self.op_names
        columns = (self.tensor_size, self.is_final, self.is_control)
        pointers, consumers = self.consumers
        readers = (tuple(ops[op] for op in consumers[a:b].tolist()) for a, b in pairwise(pointers.tolist()))
        views = (names[tensor] if tensor >= 0 else "" for tensor in self.alias_of.tolist())
        makers = (ops[op] for op in self.tensor_producer.tolist())
        rows = zip(names, *(column.tolist() for column in columns), views, makers, readers, strict=True)
        return tuple(map(Tensor._make, rows))

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.op_names)

    @property
    def num_tensors(self) -> int:
        """Number of tensors, control tensors included."""
        return len(self.tensor_size)

    @property
    def num_data_tensors(self) -> int:
        """Number of tensors as reports count them: without control tensors, which hold no data."""
        return int(self.num_tensors - self.is_control.sum())

    @cached_property
    def tensor_producer(self) -> IndexArray:
        """The op that produces each tensor, shape `(tensors,)`."""
        return frozen(np.repeat(np.arange(self.num_ops), np.diff(self.output_ptr)), np.int32)

    @cached_property
    def _distinct_reads(self) -> tuple[NDArray[Any], NDArray[Any]]:
        ops = np.repeat(np.arange(self.num_ops, dtype=np.int32), np.diff(self.read_ptr))
        return distinct_pairs(ops, self.read_tensor)

    @cached_property
    def inputs(self) -> tuple[IndexArray, IndexArray]:
        """CSR op -> the distinct tensors it reads, control tensors included."""
        ops, tensors = self._distinct_reads
        return (self.read_ptr, tensors) if tensors is self.read_tensor else csr(ops, tensors, self.num_ops)

    @cached_property
    def consumers(self) -> tuple[IndexArray, IndexArray]:
        """CSR tensor -> the distinct ops that read it."""
        ops, tensors = self._distinct_reads
        return csr(tensors, ops, self.num_tensors)

    @cached_property
    def edges(self) -> tuple[IndexArray, IndexArray]:
        """Distinct `(producer op, consumer op)` pairs, of data and control alike."""
        ops, tensors = self._distinct_reads
        sources, targets = distinct_pairs(self.tensor_producer[tensors], ops)
        return frozen(sources, np.int32), frozen(targets, np.int32)

    @cached_property
    def predecessors(self) -> tuple[IndexArray, IndexArray]:
        """CSR op -> the distinct ops it waits for."""
        sources, targets = self.edges
        pointers, tensors = self.inputs
        is_plain = len(sources) == len(tensors)  # no op reads several tensors of another one
        return (pointers, sources) if is_plain else csr(targets, sources, self.num_ops)

    @cached_property
    def successors(self) -> tuple[IndexArray, IndexArray]:
        """CSR op -> the distinct ops that wait for it."""
        if np.array_equal(self.tensor_producer, np.arange(self.num_ops)):  # each op has one output
            return self.consumers
        return csr(*self.edges, self.num_ops)

    @cached_property
    def root(self) -> IndexArray:
        """The tensor at the end of each tensor's alias chain, shape `(tensors,)`; itself if no alias."""
        root = np.where(self.alias_of >= 0, self.alias_of, np.arange(self.num_tensors))
        while not np.array_equal(root, root[root]):
            root = root[root]
        return frozen(root, np.int32)

    @cached_property
    def buffers(self) -> Buffers:
        """The graph reduced to the buffers of one device's memory; persistent bytes, always there, are left out."""
        data = ~self.is_control
        roots = np.flatnonzero(data & (self.alias_of < 0))
        buffer_of_root = np.full(self.num_tensors, -1, np.int32)
        buffer_of_root[roots] = np.arange(len(roots))
        buffer = buffer_of_root[self.root]

        is_final = np.zeros(len(roots), bool)
        is_final[buffer[data & self.is_final]] = True
        user_ptr, users = self.consumers
        buffers, ops = np.repeat(buffer, np.diff(user_ptr)), users
        if len(roots) < self.num_tensors:  # some tensors are views or control
            held = np.repeat(data, np.diff(user_ptr))
            buffers, ops = distinct_pairs(buffers[held], ops[held])
            user_ptr, users = csr(buffers, ops, len(roots))
        elif pairs_rise(*self._distinct_reads):  # and nothing needs to be sorted
            buffers, ops = self._distinct_reads[::-1]
        used_ptr, used = csr(ops, buffers, self.num_ops)
        producer, size = self.tensor_producer[roots], self.tensor_size[roots]
        own = np.zeros(self.num_ops, np.int64)
        np.add.at(own, producer, size)
        made_ptr = np.searchsorted(producer, np.arange(self.num_ops + 1))
        return Buffers(
            frozen(size, np.int64),
            frozen(producer, np.int32),
            frozen(is_final, np.bool_),
            user_ptr,
            users,
            used_ptr,
            used,
            frozen(made_ptr, np.int32),
            frozen(own, np.int64),
            self.workspace,
            *self.predecessors,
            *self.successors,
        )

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        """Per tensor its name: `op:port`, or `op:control` for a control tensor."""
        ports, control = self.output_ptr.tolist(), self.is_control.tolist()
        return tuple(
            f"{name}:{'control' if control[tensor] else tensor - ports[op]}"
            for op, name in enumerate(self.op_names)
            for tensor in range(ports[op], ports[op + 1])
        )

    def tensor_name(self, tensor: int) -> str:
        """Return `op:port`, or `op:control` for a control tensor."""
        return self.tensor_names[tensor]

    def op_label(self, op: int) -> str:
        """Return an op as messages name it: `'mm_3' (encoder.layer.0.attention, model.py:31)`, as far as known."""
        source = self.annotations.source_of(op)
        return f"'{self.op_names[op]}' ({source})" if source else f"'{self.op_names[op]}'"

    def outputs(self, op: int) -> range:
        """Return the tensors that `op` produces, its control tensor included."""
        return range(int(self.output_ptr[op]), int(self.output_ptr[op + 1]))

    def __repr__(self) -> str:
        return f"CostGraph({self.name!r}: {self.num_ops:,} ops, {self.num_data_tensors:,} tensors)"

    def _repr_html_(self) -> str:
        from rich.table import Table
        from rich.text import Text

        from ..base.tables import html_of
        from ..base.units import format_bytes, format_microseconds

        table = Table("ops", "edges", "tensors", "their bytes", "persistent bytes", "runtimes")
        table.add_row(
            f"{self.num_ops:,}",
            f"{len(self.edges[0]):,}",
            f"{self.num_data_tensors:,}",
            format_bytes(int(self.tensor_size[self.alias_of < 0].sum())),
            format_bytes(int(self.persistent.sum())),
            format_microseconds(float(self.runtime.sum())),
        )
        return html_of(Text(self.name, style="bold"), table)

    def __eq__(self, other: object) -> bool:
        """Equal in everything but the graph's name and annotations."""
        if not isinstance(other, CostGraph):
            return NotImplemented
        names = [field.name for field in fields(CostGraph) if field.name not in _NOT_COMPARED]
        is_same = self.op_names == other.op_names
        return is_same and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]
