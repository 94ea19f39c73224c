"""Every method by its one name; a new method is one file and one line here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import UsageError
from ..problem import Problem
from ..schedule import Schedule
from .parameters import Parameters, from_texts


class Method(NamedTuple):
    """A method: where its `solve(search, parameters)` is, and what it can be used for.

    Parameters
    ----------
    entry
        `module:function`, imported when the method is chosen; the module may define `Parameters`.
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
    """

    entry: str
    summary: str
    source: str
    memory_on_one_device_only: bool = False
    several_devices_only: bool = False
    searches: bool = True
    counts_evaluations: bool = True
    default_evaluations: int | None = None
    default_seconds: float | None = None


_SOLVERS = "schedopt.core.solvers"
METHODS: dict[str, Method] = {
    "auto": Method(
        f"{_SOLVERS}.auto:solve",
        "The best of the methods below within the time limit; never worse than the input order",
        "ours",
        default_seconds=10.0,
    ),
    "input": Method(
        f"{_SOLVERS}.one_device.sequences:input_order",
        "The file's own order, all on device 0",
        "program order",
        searches=False,
    ),
    "random": Method(
        f"{_SOLVERS}.one_device.random_orders:solve",
        "Best of N random topological orders, placed at random",
        "Topoformer 5, C",
        default_evaluations=100,
    ),
    "dfs": Method(
        f"{_SOLVERS}.one_device.sequences:dfs",
        "Depth-first sequencing (Kahn with a stack), device 0",
        "Topoformer 5",
        searches=False,
    ),
    "dfs-postorder": Method(
        f"{_SOLVERS}.one_device.sequences:dfs_postorder",
        "Reverse postorder of a depth-first search, device 0",
        "field standard",
        searches=False,
    ),
    "bfs": Method(
        f"{_SOLVERS}.one_device.sequences:bfs",
        "Breadth-first sequencing (Kahn with a queue), device 0",
        "Topoformer 5",
        searches=False,
    ),
    "lpmf": Method(
        f"{_SOLVERS}.one_device.lpmf:solve",
        "Least peak memory first: the ready op that keeps the peak lowest, then frees most; device 0",
        "field standard",
        searches=False,
    ),
    "depth-first-dp": Method(
        f"{_SOLVERS}.one_device.depth_first_dp:solve",
        "Depth-first search with state collapsing and cost pruning; anytime, optimal when it ends",
        "Topoformer C.3",
        memory_on_one_device_only=True,
        counts_evaluations=False,
    ),
    "approximate-dp": Method(
        f"{_SOLVERS}.one_device.approximate_dp:solve",
        "Beam of the K best executed-op sets with state collapsing; exact if none was cut",
        "Topoformer C.3",
        memory_on_one_device_only=True,
        counts_evaluations=False,
    ),
    "order-search": Method(
        f"{_SOLVERS}.one_device.order_search:solve",
        "Beams in both directions, cut and tightened by proofs of what any better order must obey",
        "ours",
        memory_on_one_device_only=True,
        default_seconds=10.0,
    ),
    "topoformer": Method(
        "schedopt.policies.topoformer.solve:solve",
        "Priorities by attention along the graph's partial order, decoded greedily, by samples or by a beam",
        "Topoformer 4",
        searches=False,
        default_evaluations=5000,
    ),
    "gp-dfs": Method(
        f"{_SOLVERS}.several_devices.gp_dfs:solve",
        "Kernighan-Lin partition, then per device the depth-first order of XLA's memory scheduler",
        "REGAL A.10",
        searches=False,
    ),
    "local-search": Method(
        f"{_SOLVERS}.several_devices.local_search:solve",
        "Random start; moves an op to another device or another place in the order; restarts",
        "REGAL A.10",
        default_evaluations=5000,
    ),
    "cp-sat": Method(
        f"{_SOLVERS}.cp_sat.solve:solve",
        "Constraint programming (OR-Tools), hinted by auto: exact with time enough, else with a proven bound",
        "REGAL A.10",
        counts_evaluations=False,
    ),
    "annealing": Method(
        f"{_SOLVERS}.several_devices.annealing:solve",
        "Simulated annealing: for the makespan from the lazy decoder's keys, for the peak from beams of placements",
        "ours; Kirkpatrick 1983",
        default_evaluations=5000,
    ),
    "brkga": Method(
        f"{_SOLVERS}.several_devices.brkga:solve",
        "Biased random-key genetic algorithm with beta mutants: placement, order and transfers",
        "REGAL 3.2, A.5",
        default_evaluations=5000,
    ),
    "brkga-tuned": Method(
        f"{_SOLVERS}.several_devices.brkga_tuned:solve",
        "brkga with the parameters that a grid search chose for the task (schedopt train brkga)",
        "REGAL A.10",
        default_evaluations=5000,
    ),
    "regal": Method(
        "schedopt.policies.regal.solve:solve",
        "brkga with distributions that a graph neural network chooses for each op",
        "REGAL 4",
        several_devices_only=True,
        default_evaluations=5000,
    ),
    "gas": Method(
        "schedopt.policies.regal.gas:solve",
        "regal with an LSTM along a topological order in place of the graph neural network",
        "REGAL 5.2",
        several_devices_only=True,
        default_evaluations=5000,
    ),
    "idrs": Method(
        "schedopt.policies.regal.idrs:solve",
        "regal with one generation: random search among what its network chooses",
        "REGAL 5.2",
        several_devices_only=True,
        default_evaluations=5000,
    ),
}


@dataclasses.dataclass(frozen=True)
class MethodSpec:
    """A method with its parameters and, for comparisons, a budget of its own.

    Written `name` or `name:parameter=value:...`; `evaluations` and `time_limit` are known to every method.
    """

    text: str
    name: str
    parameters: Parameters
    evaluations: int | None = None
    time_limit: float | None = None

    @property
    def method(self) -> Method:
        """The registry's line."""
        return METHODS[self.name]


def parameters_class(name: str) -> type[Parameters]:
    """Import a method and return the class of its parameters."""
    module = import_module(METHODS[name].entry.partition(":")[0])
    kind: type[Parameters] = getattr(module, "Parameters", Parameters)
    return kind


def load(name: str) -> Any:
    """Import a method and return its `solve(search, parameters)`."""
    module, _, function = METHODS[name].entry.partition(":")
    return getattr(import_module(module), function)


def parts_of(name: str, problem: Problem) -> list[str]:
    """Return the methods that a method may use for this problem: itself, unless its module has `parts`."""
    module = import_module(METHODS[name].entry.partition(":")[0])
    parts: list[str] = module.parts(problem) if hasattr(module, "parts") else [name]
    return parts


def parse_method(text: str, **flags: str | None) -> MethodSpec:
    """Read `name` or `name:parameter=value:...`.

    Parameters
    ----------
    text
        The method as written.
    flags
        Parameters that the command line has a flag for, as in `--decoder lazy`; None if not given.

    Raises
    ------
    UsageError
        If the method or a parameter is unknown, or a value out of range.
    """
    from ..units import parse_seconds

    name, *settings = text.strip().split(":")
    if name not in METHODS:
        raise UsageError(f"unknown method '{name}'; choose from {', '.join(METHODS)}")
    texts = {flag: value for flag, value in flags.items() if value is not None}
    for flag in texts:
        if not _has_parameter(name, flag):
            able = _listed(other for other in METHODS if _has_parameter(other, flag))
            raise UsageError(f"--{flag} is not for method '{name}', which has none; it is for {able}")
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"'{setting}' in method '{text}' is not written parameter=value")
        key = key.strip().replace("-", "_")
        if key in texts:
            raise UsageError(f"parameter {key} of '{name}' is given twice")
        texts[key] = value.strip()
    evaluations = texts.pop("evaluations", None)
    time_limit = texts.pop("time_limit", None)
    if evaluations is not None and not (evaluations.isdigit() and int(evaluations) > 0):
        raise UsageError(f"evaluations of '{name}' must be a whole number from 1, not '{evaluations}'")
    return MethodSpec(
        text.strip(),
        name,
        from_texts(parameters_class(name), texts, name),
        int(evaluations) if evaluations else None,
        parse_seconds(time_limit) if time_limit else None,
    )


def _has_parameter(name: str, parameter: str) -> bool:
    return parameter in {field.name for field in dataclasses.fields(parameters_class(name))}


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def check_supported(
    spec: MethodSpec, problem: Problem, evaluations: int | None, initial: Schedule | None = None
) -> None:
    """Raise UsageError if the method cannot solve this problem, count evaluations, or start from a schedule."""
    if spec.method.memory_on_one_device_only and (problem.task != "memory" or problem.devices > 1):
        able = _listed(
            name
            for name, method in METHODS.items()
            if not (method.memory_on_one_device_only or (problem.devices == 1 and method.several_devices_only))
        )
        raise UsageError(
            f"method '{spec.name}' minimises peak memory on one device; "
            f"for --task {problem.task} --devices {problem.devices} use {able}"
        )
    if spec.method.several_devices_only and problem.devices == 1:
        able = _listed(name for name, method in METHODS.items() if not method.several_devices_only)
        raise UsageError(f"method '{spec.name}' places ops on several devices; for --devices 1 use {able}")
    spec.parameters.check(problem)
    if initial is not None and not spec.method.searches:
        able = _listed(name for name, method in METHODS.items() if method.searches)
        raise UsageError(f"method '{spec.name}' builds one schedule and cannot start from another; use {able}")
    if evaluations is not None and not spec.method.counts_evaluations:
        raise UsageError(f"method '{spec.name}' does not count evaluations; limit it by --time-limit")
