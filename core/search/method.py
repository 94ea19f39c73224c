"""Entries of the registry: methods, and presets of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple


class Method(NamedTuple):
    """A method: its `solve(search, parameters)`, and what it can be used for.

    Parameters
    ----------
    entry
        The function, or `module:function`, imported when the method is chosen.
    summary, source
        One line, and the paper's section or the field's use.
    memory_on_one_device_only
        Refuses other problems.
    several_devices_only
        Refuses one device.
    searches
        Whether it goes on from a schedule that it is given; else it builds one and refuses `--initial`.
    counts_evaluations
        Refuses `--evaluations` if not.
    default_evaluations
        Budget when neither evaluations nor time are limited.
    default_seconds
        Time limit in the same case.
    default_devices
        Devices for the memory task where their number is not said; for the makespan it is 2 with every method.
    recomputation
        Whether it may run ops again: `never` refuses such problems, `only` refuses others.
    flags
        Parameters that `solve` has an option for; see `FLAGS`.
    trainer, training
        How `schedopt train` finds what the method uses, and what it does there in one line: `grid_search` over the
        method's parameters, or the module whose `Trainer` trains its network; empty where
        nothing is trained.
    base, fixed, takes
        Of a preset, a built-in method with some parameters fixed.

    Examples
    --------
    >>> def solve(search, parameters):
    ...     search.offer_order(search.problem.graph.input_order)
    >>> schedopt.Method(solve, "The input order", "program order", searches=False).default_devices
    1
    """

    entry: str | Callable[..., None]
    summary: str
    source: str
    memory_on_one_device_only: bool = False
    several_devices_only: bool = False
    searches: bool = True
    counts_evaluations: bool = True
    default_evaluations: int | None = None
    default_seconds: float | None = None
    default_devices: int = 1
    recomputation: Literal["never", "also", "only"] = "never"
    flags: tuple[str, ...] = ()
    trainer: str = ""
    training: str = ""
    base: str = ""
    fixed: Mapping[str, Any] = MappingProxyType({})
    takes: tuple[str, ...] | None = None

    def has(self, parameter: str) -> bool:
        """Whether a parameter may be given, if the class of the parameters has it."""
        return parameter not in self.fixed if self.takes is None else parameter in self.takes


class Preset(NamedTuple):
    """A method with some parameters fixed, under a name of its own."""

    base: str  # the method
    fixed: Mapping[str, Any]  # its parameters that differ from the defaults
    # as in `Method`
    summary: str
    source: str
    takes: tuple[str, ...] | None = None  # parameters that may be given; by default all that are not fixed

    def resolved(self, lines: Mapping[str, Method | Preset]) -> Method:
        """Return it as a method, which is like its base among the registry's lines, but not trained."""
        base = lines[self.base]
        assert isinstance(base, Method)
        method = base._replace(trainer="", training="", **self._asdict())
        return method._replace(flags=tuple(flag for flag in base.flags if method.has(flag)))
