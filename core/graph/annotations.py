"""Remarks of an importer on a graph, beside its costs: the origin of each op, and the residents."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..base.errors import GraphError

PHASES = ("", "forward", "backward", "update")
ROLES = ("parameter", "buffer", "constant", "input", "state", "gradient")


@dataclass(frozen=True)
class Resident:
    """A tensor that the caller gives and keeps: it is there before the first op and after the last."""

    name: str  # the caller's name, such as `encoder.layer.0.weight`
    role: str  # one of `ROLES`; `state` is the optimizer's, `gradient` what accumulates between steps
    size: int  # bytes, which are among the persistent bytes of `op`
    op: int  # the op whose persistent bytes hold it; -1 if no op reads it, and it is not counted
    # readers, writers: the ops that read it, and those that write it in place, ascending; views of it count as it
    readers: tuple[int, ...] = ()
    writers: tuple[int, ...] = ()


def bytes_held(residents: Iterable[Resident]) -> Counter[int]:
    """Return the bytes of residents by the op that holds them."""
    held = Counter[int]()
    for resident in residents:
        held[resident.op] += resident.size
    return held


@dataclass(frozen=True)
class Annotations:
    """Remarks on the ops of a graph, on which no cost and no order on one device depends."""

    # per op the path of its module, such as `encoder.layer.0.attention`, or an empty text; no entries if none has one
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # per op the line of the user's code that calls it, such as `model.py:31`, likewise
    phases: tuple[str, ...] = ()  # per op one of `PHASES`, likewise
    # the tensors behind the persistent bytes; on several devices they have a home, and are sent to who reads them
    # elsewhere
    residents: tuple[Resident, ...] = ()
    # how the graph was imported: `model`, and the options that are not the default, by their names in Python
    imported: Mapping[str, Any] = field(default_factory=dict)
    # per op the device that its file names for it, or an empty text; no entries if no op has one
    devices: tuple[str, ...] = ()
    # by op and output of a view, how many bytes after what it is a view of it starts; 0 for those not named
    view_offsets: Mapping[tuple[int, int], int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # what takes memory, too, and is in no cost, such as `the weights`

    def __bool__(self) -> bool:
        return any(getattr(self, known.name) for known in fields(self))

    def source_of(self, op: int) -> str:
        """Return where an op comes from, as `encoder.layer.0.attention, model.py:31`; empty if that is not known."""
        return ", ".join(filter(None, (values[op] for values in (self.modules, self.lines) if values)))

    def check(self, persistent: Sequence[int], where: str) -> None:
        """Check the remarks against the persistent bytes of the ops."""
        ops = len(persistent)
        for what in ("modules", "lines", "phases", "devices"):
            values = getattr(self, what)
            if values and len(values) != ops:
                raise GraphError(f"{where}: {len(values)} {what} are given for {ops} ops")
        if unknown := set(self.phases) - set(PHASES):
            raise GraphError(f"{where}: the phase '{min(unknown)}' is none of {', '.join(PHASES[1:])}")
        for op, port in self.view_offsets:
            if not (0 <= op < ops and port >= 0):
                raise GraphError(f"{where}: a view has an offset that is output {port} of op {op}, which is not there")
        for resident in self.residents:
            called = f"{where}: resident '{resident.name}'"
            named = (*resident.readers, *resident.writers, *((resident.op,) if resident.op >= 0 else ()))
            if resident.role not in ROLES:
                raise GraphError(f"{called} is a '{resident.role}', none of {', '.join(ROLES)}")
            if resident.size < 0 or any(not 0 <= op < ops for op in named):
                raise GraphError(f"{called} has a negative size, or names an op that is not there")
        for op, size in bytes_held(self.residents).items():
            if op >= 0 and size > persistent[op]:
                raise GraphError(f"{where}: op {op} has {persistent[op]} persistent bytes, but residents of {size}")


NO_ANNOTATIONS = Annotations()
