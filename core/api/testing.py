"""`schedopt.testing`: peaks that a test holds, counted from the user's own call without a run."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import FormatError, UsageError
from ..base.options import spelled
from ..base.units import format_bytes, parse_bytes
from ..files.atomic import write_atomically
from ..files.reading import read_json
from ..programs.options import ImportOptions
from ..report.differences import ScheduleDifference
from ..report.memory_by_role import Holder, Peak
from ..search.options import read_allocator
from .graphs import Note

if TYPE_CHECKING:
    from torch import nn

__all__ = ["assert_peak"]
_SHOWN = 12


class CallPeak(NamedTuple):
    """The peak of two calls of a model or a step, as counted without a run."""

    memory: int  # bytes: live ones, or with an allocator those that it reserves
    peak: Peak  # of live bytes
    sentence: str


def assert_peak(
    call: nn.Module | Callable[..., Any], inputs: Any, at_most: int | str, allocator: str | None = None
) -> int:
    """Fail if calls of a model or of a training step need more memory than a limit; nothing is run.

    Two calls are recorded on tensors without data, by Python as it is, and the storages counted that are alive at once:
    a tensor counts as long as a name, a list or autograd holds it. So the answer needs no GPU and is always the same.
    Memory that an op takes while it runs is not counted.

    Parameters
    ----------
    call
        A model, which is called without gradients, or a function that does a training step.
    inputs
        Its arguments: a tuple of them, a dict of keywords, or one tensor.
    at_most
        The limit, as `"2.1GiB"` or a number of bytes.
    allocator
        `"cuda"`, with options as in `solve`: the limit is of the bytes that PyTorch's caching allocator reserves; by
        default of live bytes.

    Returns
    -------
    int
        The peak, bytes.

    Raises
    ------
    AssertionError
        If the peak is above the limit; the message names the line and the largest tensors alive there.
    UsageError, ProgramError
        If a value is not understood, or the call cannot be recorded.

    Examples
    --------
    >>> import torch
    >>> from schedopt.testing import assert_peak
    >>> assert_peak(torch.nn.Linear(8, 4).eval(), torch.ones(2, 8), at_most="1KiB")
    240
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    limit = parse_bytes(at_most, spelled("at_most"))
    found = count_peak(call, inputs, allocator)
    if found.memory > limit:
        sizes = [(format_bytes(holder.size), holder.name, holder.source) for holder in found.peak.holders[:_SHOWN]]
        held = "".join(f"\n  {size:>10}  {name}{f' ({line})' * bool(line)}" for size, name, line in sizes)
        above = f"{format_bytes(found.memory - limit)} above {format_bytes(limit)}"
        raise AssertionError(f"{found.sentence}: {above}; most is held by{held}")
    return found.memory


def count_peak(
    call: Any,
    inputs: Any,
    allocator: Any = None,
    name: str = "",
    device: str | None = None,
    note: Note = lambda text: warnings.warn(text, stacklevel=4),
) -> CallPeak:
    """Return the peak of a call; `note` is told which values were guessed."""
    from torch import nn

    from ..programs.pytorch.own_step import PlannedStep, step_name
    from ..programs.pytorch.program import as_call, placed
    from ..programs.pytorch.step_graph import live_bytes

    if not callable(call) or isinstance(call, (type, PlannedStep)):
        raise UsageError(f"a PyTorch model or a function is called, not {type(call).__name__}")
    name = name or step_name(call)
    options = None if allocator is None else read_allocator(allocator, spelled("allocator"))
    arguments, is_model = as_call(inputs), isinstance(call, nn.Module)
    if is_model:
        call, arguments = placed(call, arguments, device, name, note)
    live = live_bytes(call, arguments, name, grad=not is_model)
    lines = ", ".join(live.guessed)
    if lines:
        note(f"{name}: it reads a value at {lines}, taken as 0; if the value decides what runs, the peak may differ")
    memory = live.peak.memory if options is None else live.reserved(options)
    kind = "live" if options is None else f"reserved by {options}"
    line = f", {live.peak.source}" if live.peak.source else ""
    said = f"{name}: peak {format_bytes(memory)} {kind}, at {live.peak.runs}{line}"
    return CallPeak(memory, live.peak, said + f" (if the value read at {lines} is 0)" * bool(lines))


def hold_peak(
    model: str,
    lock: str | None,
    check: str | None,
    allocator: str | None = None,
    note: Note = lambda text: None,
    **options: Any,
) -> tuple[CallPeak, str, ScheduleDifference | None]:
    """Compare the peak of `module:function` with the one locked in a file, or write it into one unless it is larger."""
    from ..programs.importers import check_options, kind_by_name

    check_options(model, ImportOptions(**options))
    if kind_by_name(model) != "pytorch" or ":" not in model:
        raise UsageError(f"{model}: {spelled('lock')} and {spelled('check')} call the result of module:function")
    from ..programs.pytorch.program import call_function

    sizes, device = options.get("shapes", {}), options.get("device")
    found = count_peak(*call_function(model, sizes), allocator, model, device, note)
    words = [f"{name}={size}" for name, size in sizes.items()]
    reader = None if allocator is None else str(read_allocator(allocator, spelled("allocator")))
    key = " ".join([model, *words, *filter(None, (device, reader))])
    said, difference = (found.sentence, None) if check is None else check_peak(check, key, found)
    if lock is not None and difference is None:
        lock_peak(lock, key, found)
    return found, said, difference


def lock_peak(path: str | os.PathLike[str], key: str, found: CallPeak) -> None:
    """Write a peak into a file, in which others stay."""
    import torch

    entries = _entries(path) if Path(path).exists() else {}
    entries[key] = {"memory": found.memory, "pytorch": torch.__version__.partition("+")[0], "peak": asdict(found.peak)}
    write_atomically(path, json.dumps({"peaks": dict(sorted(entries.items()))}, indent=1) + "\n")


def check_peak(path: str | os.PathLike[str], key: str, found: CallPeak) -> tuple[str, ScheduleDifference | None]:
    """Return a sentence that compares a peak with the locked one, and if it is larger, what makes the difference."""
    entries = _entries(path)
    if key not in entries:
        raise UsageError(f"{os.fspath(path)}: it has no peak of '{key}'; {spelled('lock')} writes it")
    try:
        memory, version, peak = (entries[key][name] for name in ("memory", "pytorch", "peak"))
        before = Peak(**{**peak, "holders": tuple(Holder(**holder) for holder in peak["holders"])})
        change = found.memory - memory
        difference = ScheduleDifference(key, ("locked", "now"), (before, found.peak))
        difference.summary()
    except (TypeError, KeyError, AttributeError):
        raise FormatError(f"{os.fspath(path)}: the peak of '{key}' is damaged; {spelled('lock')} writes it") from None
    if not change:
        return f"{found.sentence}; as locked", None
    said = f"{found.sentence}; {format_bytes(abs(change))} {'more' if change > 0 else 'less'} than locked"
    return f"{said} with PyTorch {version}", difference if change > 0 else None


def _entries(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the entries of a file of peaks."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("peaks"), dict):
        raise FormatError(f"{os.fspath(path)}: it is no file of locked peaks; name a new one in {spelled('lock')}")
    return dict(document["peaks"])
