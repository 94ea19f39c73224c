"""Building a graph op by op: every rule is checked before there is a graph."""

from __future__ import annotations

import heapq
import reprlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import INT32_MAX, INT64_MAX, BoolArray, IndexArray, IntArray, csr, distinct_pairs, frozen
from ..base.errors import GraphError, UsageError
from .annotations import NO_ANNOTATIONS, Annotations
from .graph import CostGraph

if TYPE_CHECKING:
    from typing_extensions import Unpack


class OpCosts(TypedDict, total=False):
    """Costs of an op beside its outputs, 0 by default."""

    runtime: float  # microseconds
    workspace: int  # bytes while it runs
    persistent: int  # bytes resident throughout, such as weights
    once: bool  # whether it may not run again, as it writes in place or draws random numbers
    is_final: bool | Sequence[bool]  # what `final` and `once` were called by 0.2, and programs that were written for it
    runs_once: bool


class GraphBuilder:
    """Collects ops, then checks them all and returns a `CostGraph`.

    Parameters
    ----------
    name
        Of the graph.
    where
        Its name in errors, such as the path of its file; by default its name.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("small")
    >>> source = builder.add_op("source", outputs=[1024], runtime=2.0)
    >>> double = builder.add_op("double", inputs=[(source, 0)], outputs=[2048], workspace=512)
    >>> builder.build()
    CostGraph('small': 2 ops, 2 tensors)
    """

    def __init__(self, name: str, where: str | None = None) -> None:
        self.name = name
        self.where = where or name
        of_ops: list[list[Any]] = [[] for _ in range(6)]
        self._names, self._ids, self._runtime, self._workspace, self._persistent, self._once = of_ops
        of_outputs: list[list[Any]] = [[] for _ in range(4)]
        self._output_counts, self._sizes, self._aliases, self._final = of_outputs
        of_reads: list[list[int]] = [[] for _ in range(5)]
        self._input_counts, self._input_ids, self._input_ports, self._control_counts, self._control_ids = of_reads
        self._writes: dict[int, frozenset[int]] = {}  # by place: which of its inputs an op writes

    def __repr__(self) -> str:
        return f"GraphBuilder({self.name!r}: {len(self._names)} ops)"

    def add_op(
        self,
        name: str,
        *,
        op_id: int | None = None,
        inputs: Sequence[tuple[int, int]] = (),
        control: Sequence[int] = (),
        outputs: Sequence[int] = (),
        aliases: Sequence[int] | None = None,
        final: bool | Sequence[bool] = False,
        writes: Sequence[int] = (),
        **costs: Unpack[OpCosts],
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
        final
            Whether its outputs are kept to the end: for all, or per port.
        writes
            Indices into `inputs` of the tensors whose memory it writes in place. It waits for the ops added before it
            that read this memory; neither they, nor it, nor the maker of the memory may be computed again. Ops added
            after it read its output that is a view of the written memory, if they read that.
        **costs
            `runtime`, `workspace` and `persistent`: microseconds, temporary bytes, bytes resident throughout; each is
            0 by default. `once`: whether it may not run again, false by default. `is_final`, `runs_once`: old names.

        Raises
        ------
        UsageError
            If outputs are no list, an input is no pair, aliases or `final` are not as many as outputs, or `writes`
            names no input.
        """
        final = costs.get("is_final", final)
        self._check_ports(name, inputs, outputs)
        for what, values in (("aliases", aliases), ("final", final)):
            if values is not None and not isinstance(values, bool) and len(values) != len(outputs):
                counts = f"{len(outputs)} outputs, but {len(values)} values of {what}"
                raise UsageError(f"{self.where}: op '{name}' has {counts}")
        if wrong := [at for at in writes if at not in range(len(inputs))]:
            raise UsageError(f"{self.where}: op '{name}' writes its input {wrong[0]}, but it has {len(inputs)} inputs")
        op_id = len(self._names) if op_id is None else op_id
        if writes:
            self._writes[len(self._names)] = frozenset(writes)
        self._add_costs(**costs)
        self._names.append(name)
        self._ids.append(op_id)
        self._output_counts.append(len(outputs))
        self._sizes.extend(outputs)
        self._aliases.extend([-1] * len(outputs) if aliases is None else aliases)
        self._final.extend([final] * len(outputs) if isinstance(final, bool) else final)
        self._input_counts.append(0)
        self.add_reads([producer for producer, _ in inputs], [port for _, port in inputs])
        self._control_counts.append(len(control))
        self._control_ids.extend(control)
        return op_id

    def add_reads(self, producers: Sequence[int], ports: Sequence[int]) -> None:
        """Let the op added last read more: for each argument the id of an op, and its port.

        Parameters
        ----------
        producers, ports
            Ids and ports of equal number; many are added several times as fast as pairs are by `add_op`.
        """
        self._input_counts[-1] += len(producers)
        self._input_ids.extend(producers)
        self._input_ports.extend(ports)

    def _check_ports(self, name: str, inputs: Any, outputs: Any) -> None:
        if isinstance(outputs, (Real, str)):
            raise UsageError(f"{self.where}: outputs of op '{name}' are a list of bytes per port, not {outputs!r}")
        for pair in inputs:
            if type(pair) is tuple and len(pair) == 2 and type(pair[0]) is type(pair[1]) is int:
                continue  # as nearly always, and told apart several times as fast
            if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(part, Integral) for part in pair):
                raise UsageError(f"{self.where}: an input of op '{name}' is a pair (op id, port), not {pair!r}")

    def _add_costs(
        self,
        runtime: float = 0.0,
        workspace: int = 0,
        persistent: int = 0,
        once: bool = False,
        runs_once: bool = False,
        is_final: bool | Sequence[bool] = False,  # read before
    ) -> None:
        self._runtime.append(runtime)
        self._workspace.append(workspace)
        self._persistent.append(persistent)
        self._once.append(once or runs_once)

    def build(self, annotations: Annotations = NO_ANNOTATIONS) -> CostGraph:
        """Check every rule and return the graph.

        Parameters
        ----------
        annotations
            Origins of the ops, and residents; none by default.

        Raises
        ------
        GraphError
            Naming the first op that breaks a rule, the value and the rule.
        UsageError
            If a value is of the wrong type, such as a fraction of a byte.
        """
        count = len(self._names)
        if count == 0:
            raise GraphError(f"{self.where}: the graph has no ops")
        ids = self._checked_ids()
        self._check_types()
        names = self._unique_names()
        self._check_costs(names)
        annotations.check(self._persistent, self.where)
        readers, producers, ports = self._data_reads(ids, names)
        waiters = np.repeat(np.arange(count), self._control_counts)
        waited = self._resolve(ids, self._control_ids, waiters, names, "waits for")
        once = np.array(self._once, bool)
        if self._writes:
            pairs, spoilt = self._hazards(names, producers, ports)
            once[spoilt] = True
            waited, waiters = (np.concatenate((a, b)) for a, b in zip((waited, waiters), pairs, strict=True))

        # Each op's tensors: its ports, then its control tensor if some op waits for it.
        has_control = np.zeros(count, np.int64)
        has_control[waited] = 1
        output_ptr = np.concatenate(([0], np.cumsum(np.array(self._output_counts, np.int64) + has_control)))
        control_tensor = output_ptr[1:] - 1
        data = np.ones(output_ptr[-1], bool)
        data[control_tensor[has_control == 1]] = False

        read_ops = np.concatenate((readers, waiters))
        read_tensors = np.concatenate((output_ptr[producers] + ports, control_tensor[waited]))
        read_ptr, read_tensor = csr(read_ops, read_tensors, count)
        aliased = self._aliased_tensors(names, read_ptr, read_tensor)
        sources = np.concatenate((producers, waited))
        return CostGraph(
            name=self.name,
            op_names=tuple(names),
            op_ids=frozen(ids, np.int64),
            runtime=frozen(self._runtime, np.float64),
            workspace=frozen(self._workspace, np.int64),
            persistent=frozen(self._persistent, np.int64),
            output_ptr=frozen(output_ptr, np.int32),
            tensor_size=frozen(_spread(np.array(self._sizes, np.int64), data, 0), np.int64),
            alias_of=frozen(_spread(aliased, data, -1), np.int32),
            is_final=frozen(_spread(np.array(self._final, bool), data, False), np.bool_),
            is_control=frozen(~data, np.bool_),
            read_ptr=read_ptr,
            read_tensor=read_tensor,
            input_order=frozen(self._topological_order(names, sources, read_ops), np.int32),
            runs_once=frozen(once, np.bool_),
            annotations=annotations,
        )

    def _data_reads(self, ids: IntArray, names: list[str]) -> tuple[IntArray, IntArray, IntArray]:
        """Return reader, producer and port of every argument, each of shape `(arguments,)`."""
        readers = np.repeat(np.arange(len(names)), self._input_counts)
        ports = _as_int64(self._input_ports)
        producers = self._resolve(ids, self._input_ids, readers, names, "reads")
        outputs = np.array(self._output_counts, np.int64)
        wrong = np.flatnonzero((ports < 0) | (ports >= outputs[producers]))
        if len(wrong):
            at = wrong[0]
            have = int(outputs[producers[at]])
            raise GraphError(
                f"{self.where}: op '{names[readers[at]]}' reads port {ports[at]} of op "
                f"'{names[producers[at]]}', which has {have} output{'s' * (have != 1)}"
            )
        return readers, producers, ports

    def _hazards(self, names: list[str], producers: IntArray, ports: IntArray) -> tuple[IntArray, list[int]]:
        """Return who is waited for by whom as it writes in place, shape `(2, pairs)`, and who may not run again."""
        inputs = iter(zip(producers.tolist(), ports.tolist(), strict=True))
        reads = [list(islice(inputs, many)) for many in self._input_counts]
        aliases = iter(self._aliases)
        viewed = {
            (op, port): reads[op][alias]
            for op, many in enumerate(self._output_counts)
            for port, alias in enumerate(islice(aliases, many))
            if 0 <= alias < len(reads[op])
        }
        readers: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        writer: dict[tuple[int, int], int] = {}
        pairs: dict[tuple[int, int], None] = {}
        once: set[int] = set()
        for op, tensors in enumerate(reads):
            own = {maker for maker, _ in tensors}
            for at, tensor in enumerate(tensors):
                path = [tensor]
                while path[-1] in viewed and len(path) <= len(viewed):
                    path.append(viewed[path[-1]])
                root, makers = path[-1], {maker for maker, _ in path}
                if root in writer and writer[root] not in (op, *makers):
                    raise GraphError(
                        f"{self.where}: op '{names[op]}' reads port {tensor[1]} of op '{names[tensor[0]]}', which op "
                        f"'{names[writer[root]]}' added before it wrote in place; let it read that op's output"
                    )
                if at in self._writes.get(op, ()):
                    before = readers.pop(root, [])
                    pairs.update(((reader, op), None) for reader in before if reader not in (op, *own))
                    once |= {op, root[0], *before}
                    writer[root] = op
                else:
                    readers[root].append(op)
        return np.array(list(pairs), np.int64).reshape(-1, 2).T, sorted(once)

    def _checked_ids(self) -> IntArray:
        if min(self._ids) < 0 or max(self._ids) > INT32_MAX:
            at = next(i for i, v in enumerate(self._ids) if not 0 <= v <= INT32_MAX)
            what = f"op '{self._names[at]}' has the id {self._ids[at]}"
            raise GraphError(f"{self.where}: {what}; ids are from 0 to 2^31 - 1")
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
        names: dict[str, None] = {}
        for name, op_id in zip(self._names, self._ids, strict=True):
            unique = name or str(op_id)
            if unique in names or (not name and unique in taken):
                unique = f"{unique}#{op_id}"
                while unique in taken or unique in names:
                    unique += f"#{op_id}"
            names[unique] = None
        return list(names)

    def _resolve(
        self, ids: IntArray, wanted: list[int], readers: NDArray[Any], names: list[str], verb: str
    ) -> NDArray[np.int64]:
        targets = _as_int64(wanted)
        if np.array_equal(ids, np.arange(len(ids))) and np.all((targets >= 0) & (targets < len(ids))):
            return targets
        order = np.argsort(ids, kind="stable")
        found = order[np.minimum(np.searchsorted(ids[order], targets), len(ids) - 1)]
        missing = np.flatnonzero(ids[found] != targets)
        if len(missing):
            at = missing[0]
            what = f"op '{names[readers[at]]}' {verb} op id {targets[at]}"
            raise GraphError(f"{self.where}: {what}, which is not in the graph")
        return found

    def _check_types(self) -> None:
        """Refuse values that arrays would round or misread."""
        owners = np.repeat(np.arange(len(self._names)), self._output_counts)
        for what, values, usual, kind, wanted in (
            ("name", self._names, str, str, "a text"),
            ("runtime", self._runtime, float, Real, "a number"),
            ("workspace", self._workspace, int, Integral, "a whole number"),
            ("persistent size", self._persistent, int, Integral, "a whole number"),
            ("output size", self._sizes, int, Integral, "a whole number"),
        ):
            for at, value in enumerate(values):
                if type(value) is not usual and (isinstance(value, bool) or not isinstance(value, kind)):
                    name = self._names[owners[at] if values is self._sizes else at]
                    given = reprlib.repr(value)
                    raise UsageError(f"{self.where}: op '{name}' has the {what} {given}, which is not {wanted}")

    def _check_costs(self, names: list[str]) -> None:
        columns = {"runtime": self._runtime, "workspace": self._workspace, "persistent size": self._persistent}
        wanted = "it must be from 0 to 2^63 - 1"
        for what, values in columns.items():
            for at, value in enumerate(values):
                if not 0 <= value <= INT64_MAX:
                    raise GraphError(f"{self.where}: op '{names[at]}' has the {what} {reprlib.repr(value)}; {wanted}")
        if self._sizes and not (min(self._sizes) >= 0 and max(self._sizes) <= INT64_MAX):
            at = next(i for i, v in enumerate(self._sizes) if not 0 <= v <= INT64_MAX)
            op = int(np.searchsorted(np.cumsum(self._output_counts), at, side="right"))
            size = reprlib.repr(self._sizes[at])
            raise GraphError(f"{self.where}: op '{names[op]}' has an output of {size} bytes; {wanted}")
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


def _as_int64(values: list[int]) -> NDArray[np.int64]:
    """Return whole numbers as an array; those out of range become -1, which names no op and no port."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([value if -INT64_MAX <= value <= INT64_MAX else -1 for value in values], np.int64)


def _spread(values: NDArray[Any], data: BoolArray, control: Any) -> NDArray[Any]:
    """Return a value per tensor from one per data tensor, and one for all control tensors."""
    spread = np.full(len(data), control, values.dtype)
    spread[data] = values
    return spread


def _find_cycle(sources: NDArray[Any], targets: NDArray[Any], stuck: BoolArray) -> list[int]:
    """Walk backwards among ops that never become ready until one repeats."""
    inside = stuck[sources] & stuck[targets]
    before = dict(zip(targets[inside].tolist(), sources[inside].tolist(), strict=True))
    place: dict[int, int] = {}
    op = next(iter(before))
    while op not in place:
        place[op] = len(place)
        op = before[op]
    return list(place)[place[op] :][::-1]
