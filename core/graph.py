"""The computation graph: immutable arrays, checked when built (DESIGN: ops with costs, tensors with bytes)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import GraphError

if TYPE_CHECKING:
    from .buffers import Buffers

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
_COMPARED_ARRAYS = (
    "op_ids",
    "runtime",
    "workspace",
    "persistent",
    "output_ptr",
    "tensor_size",
    "alias_of",
    "is_final",
    "is_control",
    "read_ptr",
    "read_tensor",
)


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """Return `values` as a contiguous array that cannot be written to."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def csr(rows: NDArray[Any], columns: NDArray[Any], count: int) -> tuple[IndexArray, IndexArray]:
    """Group `columns` by `rows`, keeping their order: `(pointers of shape (count + 1,), columns)`."""
    order = np.argsort(rows, kind="stable")
    pointers = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=pointers[1:])
    return frozen(pointers, np.int32), frozen(columns[order], np.int32)


def distinct_pairs(rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Drop repeated `(row, column)` pairs, keeping the first of each in its place."""
    width = int(columns.max(initial=0)) + 1
    _, first = np.unique(rows.astype(np.int64) * width + columns, return_index=True)
    first.sort()
    return rows[first], columns[first]


@dataclass(frozen=True, eq=False)
class CostGraph:
    """A computation graph with costs; build it with `GraphBuilder`, which checks every rule.

    Sizes are bytes (int64), runtimes microseconds (float64). The tensors of an op are contiguous and in
    port order; an op with control dependents has one more, its zero-byte control tensor (REGAL A.2), last.

    Parameters
    ----------
    name
        What to call the graph in reports, usually the stem of its file.
    op_names, op_ids
        Per op: its unique name, and its id in the file.
    runtime, workspace, persistent
        Per op, shape `(ops,)`: microseconds, temporary bytes, bytes resident throughout.
    output_ptr
        Shape `(ops + 1,)`: the tensors of op `v` are `output_ptr[v]` up to `output_ptr[v + 1]`.
    tensor_size, alias_of, is_final, is_control
        Per tensor, shape `(tensors,)`: bytes; the tensor it is a view of, or -1; kept to the end; control.
    read_ptr, read_tensor
        What each op reads as written, repeats included: data in argument order, then control.
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
    input_order: IndexArray = field(repr=False)

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
        ops = np.repeat(np.arange(self.num_ops), np.diff(self.read_ptr))
        return distinct_pairs(ops, self.read_tensor)

    @cached_property
    def inputs(self) -> tuple[IndexArray, IndexArray]:
        """CSR op -> the distinct tensors it reads, control tensors included."""
        ops, tensors = self._distinct_reads
        return csr(ops, tensors, self.num_ops)

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
        return csr(targets, sources, self.num_ops)

    @cached_property
    def successors(self) -> tuple[IndexArray, IndexArray]:
        """CSR op -> the distinct ops that wait for it."""
        sources, targets = self.edges
        order = np.lexsort((targets, sources))
        return csr(sources[order], targets[order], self.num_ops)

    @cached_property
    def root(self) -> IndexArray:
        """The tensor at the end of each tensor's alias chain, shape `(tensors,)`; itself if no alias."""
        root = np.where(self.alias_of >= 0, self.alias_of, np.arange(self.num_tensors))
        while not np.array_equal(root, root[root]):
            root = root[root]
        return frozen(root, np.int32)

    @cached_property
    def buffers(self) -> Buffers:
        """The graph reduced to what one device's memory depends on."""
        from .buffers import buffers_of

        return buffers_of(self)

    def tensor_name(self, tensor: int) -> str:
        """Return `op:port`, or `op:control` for a control tensor."""
        op = int(self.tensor_producer[tensor])
        port = "control" if self.is_control[tensor] else str(tensor - int(self.output_ptr[op]))
        return f"{self.op_names[op]}:{port}"

    def outputs(self, op: int) -> range:
        """Return the tensors that `op` produces, its control tensor included."""
        return range(int(self.output_ptr[op]), int(self.output_ptr[op + 1]))

    def __eq__(self, other: object) -> bool:
        """Equal in everything but the graph's name."""
        if not isinstance(other, CostGraph):
            return NotImplemented
        return self.op_names == other.op_names and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _COMPARED_ARRAYS
        )

    __hash__ = None  # type: ignore[assignment]


class GraphBuilder:
    """Collects ops, then checks them all and returns a `CostGraph`.

    Parameters
    ----------
    name
        Of the graph.
    where
        What errors call it, such as the path of its file; by default its name.
    """

    def __init__(self, name: str, where: str | None = None) -> None:
        self.name = name
        self.where = where or name
        self._names: list[str] = []
        self._ids: list[int] = []
        self._runtime: list[float] = []
        self._workspace: list[int] = []
        self._persistent: list[int] = []
        self._output_counts: list[int] = []
        self._sizes: list[int] = []
        self._aliases: list[int] = []
        self._final: list[bool] = []
        self._input_counts: list[int] = []
        self._input_ids: list[int] = []
        self._input_ports: list[int] = []
        self._control_counts: list[int] = []
        self._control_ids: list[int] = []

    def add_op(
        self,
        name: str,
        *,
        op_id: int | None = None,
        inputs: Sequence[tuple[int, int]] = (),
        control: Sequence[int] = (),
        outputs: Sequence[int] = (),
        aliases: Sequence[int] | None = None,
        is_final: bool | Sequence[bool] = False,
        runtime: float = 0.0,
        workspace: int = 0,
        persistent: int = 0,
    ) -> int:
        """Add an op and return its id.

        Parameters
        ----------
        name
            Its name; an empty one becomes its id, a repeated one gets `#id` appended.
        op_id
            Its id; by default the number of ops so far.
        inputs
            `(op id, port)` per argument, repeats included; ops may be added later than they are named.
        control
            Ids of the ops it waits for.
        outputs
            Bytes per output port.
        aliases
            Per output port the index into `inputs` of the tensor it is a view of, or -1 (default).
        is_final
            Whether its outputs are kept to the end: for all, or per port.
        runtime, workspace, persistent
            Microseconds, temporary bytes, bytes resident throughout.
        """
        op_id = len(self._names) if op_id is None else op_id
        self._names.append(name)
        self._ids.append(op_id)
        self._runtime.append(runtime)
        self._workspace.append(workspace)
        self._persistent.append(persistent)
        self._output_counts.append(len(outputs))
        self._sizes.extend(outputs)
        self._aliases.extend([-1] * len(outputs) if aliases is None else aliases)
        self._final.extend([is_final] * len(outputs) if isinstance(is_final, bool) else is_final)
        self._input_counts.append(len(inputs))
        for producer, port in inputs:
            self._input_ids.append(producer)
            self._input_ports.append(port)
        self._control_counts.append(len(control))
        self._control_ids.extend(control)
        return op_id

    def build(self) -> CostGraph:
        """Check every rule and return the graph.

        Raises
        ------
        GraphError
            Naming the first op that breaks a rule, the value and the rule.
        """
        count = len(self._names)
        if count == 0:
            raise GraphError(f"{self.where}: the graph has no ops")
        ids = self._checked_ids()
        names = self._unique_names()
        self._check_costs(names)
        sizes = np.array(self._sizes, np.int64)
        outputs = np.array(self._output_counts, np.int64)

        readers = np.repeat(np.arange(count), self._input_counts)
        ports = np.array(self._input_ports, np.int64)
        producers = self._resolve(ids, self._input_ids, readers, names, "reads")
        wrong = np.flatnonzero((ports < 0) | (ports >= outputs[producers]))
        if len(wrong):
            at = wrong[0]
            have = int(outputs[producers[at]])
            raise GraphError(
                f"{self.where}: op '{names[readers[at]]}' reads port {ports[at]} of op "
                f"'{names[producers[at]]}', which has {have} output{'s' * (have != 1)}"
            )
        waiters = np.repeat(np.arange(count), self._control_counts)
        waited = self._resolve(ids, self._control_ids, waiters, names, "waits for")

        # Each op's tensors: its ports, then its control tensor if some op waits for it.
        has_control = np.zeros(count, np.int64)
        has_control[waited] = 1
        output_ptr = np.concatenate(([0], np.cumsum(outputs + has_control)))
        data = np.ones(output_ptr[-1], bool)
        control_tensor = output_ptr[1:] - 1
        data[control_tensor[has_control == 1]] = False

        tensor_size = np.zeros(len(data), np.int64)
        tensor_size[data] = sizes
        is_final = np.zeros(len(data), bool)
        is_final[data] = np.array(self._final, bool)
        read_ops = np.concatenate((readers, waiters))
        read_tensors = np.concatenate((output_ptr[producers] + ports, control_tensor[waited]))
        read_ptr, read_tensor = csr(read_ops, read_tensors, count)
        alias_of = np.full(len(data), -1, np.int64)
        alias_of[data] = self._aliased_tensors(names, read_ptr, read_tensor)
        sources = np.concatenate((producers, waited))
        return CostGraph(
            name=self.name,
            op_names=tuple(names),
            op_ids=frozen(ids, np.int64),
            runtime=frozen(self._runtime, np.float64),
            workspace=frozen(self._workspace, np.int64),
            persistent=frozen(self._persistent, np.int64),
            output_ptr=frozen(output_ptr, np.int32),
            tensor_size=frozen(tensor_size, np.int64),
            alias_of=frozen(alias_of, np.int32),
            is_final=frozen(is_final, np.bool_),
            is_control=frozen(~data, np.bool_),
            read_ptr=read_ptr,
            read_tensor=read_tensor,
            input_order=frozen(self._topological_order(names, sources, read_ops), np.int32),
        )

    def _checked_ids(self) -> IntArray:
        if min(self._ids) < 0 or max(self._ids) > INT32_MAX:
            at = next(i for i, v in enumerate(self._ids) if not 0 <= v <= INT32_MAX)
            raise GraphError(
                f"{self.where}: op '{self._names[at]}' has the id {self._ids[at]}; ids are from 0 to 2^31 - 1"
            )
        ids = np.array(self._ids, np.int64)
        unique, counts = np.unique(ids, return_counts=True)
        if len(unique) < len(ids):
            repeated = unique[counts > 1][0]
            one, two = (self._names[i] for i in np.flatnonzero(ids == repeated)[:2])
            hint = " (an op without an id counts as 0)" if repeated == 0 else ""
            raise GraphError(f"{self.where}: ops '{one}' and '{two}' both have the id {repeated}{hint}")
        return ids

    def _unique_names(self) -> list[str]:
        taken = set(self._names)
        seen: set[str] = set()
        names = []
        for name, op_id in zip(self._names, self._ids, strict=True):
            unique = name or str(op_id)
            if unique in seen or (not name and unique in taken):
                unique = f"{unique}#{op_id}"
                while unique in taken or unique in seen:
                    unique += f"#{op_id}"
            seen.add(unique)
            names.append(unique)
        return names

    def _resolve(
        self, ids: IntArray, wanted: list[int], readers: NDArray[Any], names: list[str], verb: str
    ) -> NDArray[np.int64]:
        targets = np.array(wanted, np.int64)
        order = np.argsort(ids, kind="stable")
        place = np.minimum(np.searchsorted(ids[order], targets), len(ids) - 1)
        found = order[place]
        missing = np.flatnonzero(ids[found] != targets)
        if len(missing):
            at = missing[0]
            raise GraphError(
                f"{self.where}: op '{names[readers[at]]}' {verb} op id {targets[at]}, which is not in the graph"
            )
        return found

    def _check_costs(self, names: list[str]) -> None:
        columns: tuple[tuple[str, Sequence[float]], ...] = (
            ("runtime", self._runtime),
            ("workspace", self._workspace),
            ("persistent size", self._persistent),
        )
        for what, values in columns:
            for at, value in enumerate(values):
                if not 0 <= value <= INT64_MAX:
                    raise GraphError(
                        f"{self.where}: op '{names[at]}' has the {what} {value}; it must be from 0 to 2^63 - 1"
                    )
        if self._sizes and not (min(self._sizes) >= 0 and max(self._sizes) <= INT64_MAX):
            at = next(i for i, v in enumerate(self._sizes) if not 0 <= v <= INT64_MAX)
            op = int(np.searchsorted(np.cumsum(self._output_counts), at, side="right"))
            raise GraphError(
                f"{self.where}: op '{names[op]}' has an output of {self._sizes[at]} bytes; "
                "it must be from 0 to 2^63 - 1"
            )
        if sum(self._sizes) + sum(self._workspace) + sum(self._persistent) > INT64_MAX:
            raise GraphError(f"{self.where}: the sum of all sizes exceeds 2^63 - 1 bytes")
        if sum(self._runtime) > INT64_MAX:
            raise GraphError(f"{self.where}: the sum of all runtimes exceeds 2^63 - 1 microseconds")

    def _aliased_tensors(self, names: list[str], read_ptr: IndexArray, read_tensor: IndexArray) -> NDArray[np.int64]:
        """Turn each output's argument index into the tensor it aliases, -1 where there is none."""
        argument = np.array(self._aliases, np.int64)
        op = np.repeat(np.arange(len(names)), self._output_counts)
        arguments = np.array(self._input_counts, np.int64)[op]
        none = (argument == -1) | ((argument == 0) & (arguments == 0))
        wrong = np.flatnonzero(~none & ((argument < 0) | (argument >= arguments)))
        if len(wrong):
            at = wrong[0]
            raise GraphError(
                f"{self.where}: op '{names[op[at]]}' has an output that aliases its input {argument[at]}, "
                f"but it has {arguments[at]} inputs"
            )
        aliased = np.full(len(argument), -1, np.int64)
        aliased[~none] = read_tensor[read_ptr[op[~none]] + argument[~none]]
        return aliased

    def _topological_order(self, names: list[str], sources: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.int64]:
        """Return the file's order if it is topological, else the smallest index first among ready ops."""
        count = len(names)
        if np.all(sources < targets):
            return np.arange(count)
        sources, targets = distinct_pairs(sources, targets)
        pointers, successors = csr(sources, targets, count)
        waiting = np.bincount(targets, minlength=count).tolist()
        ready = [op for op in range(count) if waiting[op] == 0]
        order = []
        while ready:
            op = heapq.heappop(ready)
            order.append(op)
            for successor in successors[pointers[op] : pointers[op + 1]].tolist():
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    heapq.heappush(ready, successor)
        if len(order) < count:
            cycle = _find_cycle(sources, targets, np.array(waiting) > 0)
            shown = cycle if len(cycle) <= 8 else [*cycle[:6], None, cycle[-1]]
            path = " -> ".join("..." if op is None else names[op] for op in [*shown, cycle[0]])
            raise GraphError(f"{self.where}: the graph has a cycle: {path}")
        return np.array(order)


def _find_cycle(sources: NDArray[Any], targets: NDArray[Any], stuck: BoolArray) -> list[int]:
    """Walk backwards among ops that never become ready until one repeats."""
    inside = stuck[sources] & stuck[targets]
    before = dict(zip(targets[inside].tolist(), sources[inside].tolist(), strict=True))
    path: list[int] = []
    place: dict[int, int] = {}
    op = next(iter(before))
    while op not in place:
        place[op] = len(path)
        path.append(op)
        op = before[op]
    return path[place[op] :][::-1]
