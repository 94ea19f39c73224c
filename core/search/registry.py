"""Every method by its one name; a new method is one file and one line here, a preset of another method one line.

Other packages add methods by the entry points `schedopt.methods`; names that are here win.

Commands, help texts and the documentation know no method by name: they ask the registry.
It imports no method, so that a help text costs nothing. The module of a method may define, beside its entry:

- `Parameters`: a frozen dataclass derived from `core.search.parameters.Parameters`;
- `parts(problem, is_counted, jobs) -> list[str]`: the methods that it runs for a problem, with or without a limit of
  the evaluations and with so many workers, itself included if it runs code of its own;
- `warm_up(tiny) -> Problem`: compiles the kernels that a short run would not, and returns the problem for that short
  run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from functools import cache, partial
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ..base.errors import UsageError
from ..base.names import unknown
from .parameters import Parameters, check_declared

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Method(NamedTuple):
    """A method: its `solve(search, parameters)`, and the problems that it solves.

    Parameters
    ----------
    entry
        The function, or `module:function`, imported when the method is chosen.
    summary, source
        One line, and the paper's section or the field's use.
    memory_on_one_device_only, several_devices_only
        Refuses other problems; refuses one device.
    searches
        Whether it goes on from a schedule that it is given; else it builds one and refuses `--initial`.
    counts_evaluations
        Refuses `--evaluations` if not.
    default_evaluations, default_seconds
        Budget when neither evaluations nor time are limited.
    default_devices
        Devices for the memory task where their number is not said; for the makespan it is 2 with every method.
    recomputation
        Whether it may run ops again: `never` refuses such problems, `only` refuses others.
    flags
        Parameters that `solve` has an option for; see `FLAGS`.
    trainer, training
        How `schedopt train` finds the method's weights or parameters, and a line on its work: `grid_search` over the
        method's parameters, or the module whose `Trainer` trains its network; empty where nothing is trained.
    base, fixed, takes
        Of a preset, which is a built-in method with some parameters fixed: that method, these parameters, and which
        others may be given, by default all.

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


T = TypeVar("T")
Kind = Literal["method", "generator"]


@cache
def _entries(kind: Kind) -> dict[str, EntryPoint]:
    """Return the entry points of the installed packages by name: of equal names the first."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in reversed(tuple(entry_points(group=f"schedopt.{kind}s")))}


def entry_names(kind: Kind) -> list[str]:
    """Return the names that other packages add."""
    return sorted(_entries(kind))


def load_entry(kind: Kind, name: str, make: Callable[[Any], T]) -> T | None:
    """Import a package's addition and `make` a method of it; None without such a name, UsageError if broken."""
    entry = _entries(kind).get(name)
    if entry is None:
        return None
    try:
        return make(entry.load())
    except Exception as error:
        package = entry.dist.name if entry.dist else entry.value
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{kind} '{name}' of package {package} cannot be used: {why}; mend or uninstall it") from error


DEFAULT_METHOD = "auto"
"""Chosen where none is named."""
INPUT_METHOD = "input"
"""The order as it is given, which others are compared with."""
COMPARED_METHODS = f"{INPUT_METHOD},{DEFAULT_METHOD}"
"""Compared where none are named."""
EXAMPLE, BUDGET_EXAMPLE = "brkga:elites=10", "brkga:evaluations=1000"
"""How help texts and errors show a method with a parameter, and one with a budget of its own."""


def _preset(
    base: str, fixed: Mapping[str, Any], summary: str, source: str, takes: tuple[str, ...] | None = None
) -> Method:
    """Return the line of a method with some parameters fixed, under a name of its own."""
    return Method("", summary, source, base=base, fixed=fixed, takes=takes)


_SOLVERS, _BASELINES = "schedopt.core.solvers", "schedopt.core.solvers.orders.baselines"
_built = partial(Method, searches=False)
_on_one_device = partial(Method, memory_on_one_device_only=True)
_on_several = partial(Method, several_devices_only=True, default_evaluations=5000, default_devices=2)
_LINES: dict[str, Method] = {
    "auto": Method(
        f"{_SOLVERS}.portfolio:solve",
        "The best of the methods below within the time limit; never worse than the input order",
        "ours",
        default_seconds=10.0,
        recomputation="also",
    ),
    "input": _built(f"{_BASELINES}:input_order", "The file's own order, all on device 0", "program order"),
    "random": Method(
        f"{_SOLVERS}.placements.chromosomes:solve",
        "Best of N random topological orders, placed at random",
        "Topoformer 5",
        default_evaluations=100,
    ),
    "dfs": _built(f"{_BASELINES}:dfs", "Depth-first sequencing (Kahn with a stack), device 0", "Topoformer 5"),
    "dfs-postorder": _built(
        f"{_BASELINES}:dfs_postorder", "Reverse postorder of a depth-first search, device 0", "field standard"
    ),
    "bfs": _built(f"{_BASELINES}:bfs", "Breadth-first sequencing (Kahn with a queue), device 0", "Topoformer 5"),
    "lpmf": _built(
        f"{_BASELINES}:lpmf",
        "Least peak memory first: the ready op that keeps the peak lowest, then frees most; device 0",
        "field standard",
    ),
    "backward-ratio": _built(
        f"{_BASELINES}:backward_ratio",
        "From the last op on, the op that frees most per byte that its inputs need; device 0",
        "ours, evolved",
    ),
    "depth-first-dp": _on_one_device(
        f"{_SOLVERS}.orders.depth_first_dp:solve",
        "Depth-first search with state collapsing and cost pruning; anytime, optimal when it ends",
        "Topoformer C.3",
        counts_evaluations=False,
    ),
    "approximate-dp": _on_one_device(
        f"{_SOLVERS}.orders.approximate_dp:solve",
        "Beam of the K best executed-op sets with state collapsing; exact if none was cut",
        "Topoformer C.3",
        counts_evaluations=False,
    ),
    "order-search": _on_one_device(
        f"{_SOLVERS}.orders.order_search:solve",
        "Beams in both directions, cut and tightened by proofs of what any better order must obey",
        "ours",
        default_seconds=10.0,
    ),
    "recompute": Method(
        f"{_SOLVERS}.recompute.recompute:solve",
        "Order and repeated runs decided together: order-search, then annealing of chains that run again",
        "ours; Kirkpatrick 1983",
        default_seconds=10.0,
        recomputation="only",
    ),
    "fixed-order": _preset(
        "recompute", {"order": "input"}, "The annealing of recompute with the input order kept", "ours"
    ),
    "checkpoint-segments": _built(
        f"{_SOLVERS}.recompute.checkpoint_segments:solve",
        "Segments of the forward pass that run again before their backward pass, as many as fit; on two levels, too",
        "Chen et al. 2016",
        recomputation="only",
    ),
    "topoformer": _built(
        "schedopt.policies.topoformer.solve:solve",
        "Priorities by attention along the graph's partial order, decoded greedily, by samples or by beams",
        "Topoformer 4",
        default_evaluations=5000,
        flags=("decode", "width", "weights"),
        trainer="schedopt.policies.topoformer.training",
        training="Train Topoformer by REINFORCE, by imitation or both, in phases (Topoformer 4.3, C).",
    ),
    "gp-dfs": _built(
        f"{_SOLVERS}.placements.gp_dfs:solve",
        "Kernighan-Lin partition, then per device the depth-first order of XLA's memory scheduler",
        "REGAL A.10",
        default_devices=2,
    ),
    "heft": _built(
        f"{_SOLVERS}.placements.list_schedulers:solve",
        "Earliest finish time by upward rank, with insertion: the field's list scheduler for different devices",
        "Topcuoglu et al. 2002",
        default_devices=2,
    ),
    "peft": _preset(
        "heft",
        {"rank": "optimistic"},
        "As heft, by what is left to do after an op on each device at the best",
        "Arabnejad and Barbosa 2014",
    ),
    "cpop": _preset(
        "heft", {"rank": "critical-path"}, "As heft, with the critical path on one device", "Topcuoglu et al. 2002"
    ),
    "list-scheduling": _preset(
        "heft",
        {"rank": "starts"},
        "As heft, in the order in which idle devices take the most urgent ready op",
        "Graham 1969",
    ),
    "local-search": Method(
        f"{_SOLVERS}.placements.local_search:solve",
        "Random start; moves an op to another device or another place in the order; restarts",
        "REGAL A.10",
        default_evaluations=5000,
        trainer="grid_search",
        training="Search when to restart, for local-search:patience=N (REGAL A.10).",
    ),
    "cp-sat": Method(
        f"{_SOLVERS}.exact.solve:solve",
        "Constraint programming (OR-Tools), hinted by auto: exact with time enough, else with a proven bound",
        "REGAL A.10; MOCCASIN",
        counts_evaluations=False,
        recomputation="also",
    ),
    "annealing": Method(
        f"{_SOLVERS}.placements.annealing:solve",
        "Simulated annealing: for the makespan from the lazy decoder's keys, for the peak from beams of placements",
        "ours; Kirkpatrick 1983",
        default_evaluations=5000,
    ),
    "step-search": Method(
        f"{_SOLVERS}.placements.step_search:solve",
        "Simulated annealing of whole schedules, each transfer a step of its own: reaches every plan of a small graph",
        "ours; Kirkpatrick 1983",
        default_evaluations=5000,
    ),
    "brkga": Method(
        f"{_SOLVERS}.placements.brkga:solve",
        "Biased random-key genetic algorithm with beta mutants: placement, order and transfers",
        "REGAL 3.2, A.5",
        default_evaluations=5000,
        flags=("decoder",),
        trainer="grid_search",
        training="Search 648 settings of brkga, for brkga-tuned:settings=FILE (REGAL A.10).",
    ),
    "brkga-tuned": _preset(
        "brkga",
        {"settings": "shipped"},
        "brkga with the parameters that a grid search chose for the task, by schedopt train brkga",
        "REGAL A.10",
        takes=("settings",),
    ),
    "regal": _on_several(
        "schedopt.policies.regal.solve:solve",
        "brkga with distributions that a graph neural network chooses for each op",
        "REGAL 4",
        flags=("weights",),
        trainer="schedopt.policies.regal.training",
        training="Train REGAL, a graph network that chooses for each op what BRKGA draws from, by its rewards "
        "(REGAL 4).",
    ),
    "gas": _on_several(
        "schedopt.policies.regal.gas:solve",
        "regal with an LSTM along a topological order in place of the graph neural network",
        "REGAL 5.2",
        flags=("weights",),
        trainer="schedopt.policies.regal.training",
        training="Train GAS, REGAL with an LSTM over a topological order for its network (REGAL 5.2).",
    ),
    "idrs": _preset(
        "regal",
        {"search": "random"},
        "regal with one generation: random search among what its network chooses",
        "REGAL 5.2",
    ),
    "direct": _on_several(
        "schedopt.policies.direct.solve:solve",
        "One pass: a rule or a graph neural network gives priorities, decoded once or as the best of 16; no search",
        "ours; Jeon et al. 2023",
        searches=False,
        flags=("decode", "width", "weights"),
        trainer="schedopt.policies.direct.training",
        training="Train direct, a network that schedules in one pass, by REINFORCE.",
    ),
}


def _resolved(line: Method) -> Method:
    """Return a line's method; a preset is like its base, but not trained."""
    if not line.base:
        return line
    own = {name: getattr(line, name) for name in ("summary", "source", "base", "fixed", "takes")}
    base = _LINES[line.base]._replace(trainer="", training="", **own)
    return base._replace(flags=tuple(flag for flag in base.flags if line.has(flag)))


METHODS = {name: _resolved(line) for name, line in _LINES.items()}
"""The built-in ones."""

FLAGS = {
    "decoder": "How brkga makes a schedule of its keys: queue (the paper's) or lazy.",
    "decode": "How topoformer (greedy, sample, beam or two-way) and direct (greedy, sample or rule) decode priorities.",
    "width": "Orders that topoformer and direct draw, or partial orders in topoformer's first beam.",
    "weights": "Weights for topoformer, regal, gas, idrs or direct. (default: those shipped)",
}
"""Help of each parameter that `solve` has an option for."""
FLAG_CHOICES = {"decoder": ("queue", "lazy"), "decode": ("greedy", "sample", "beam", "two-way", "rule")}
"""Values of those that are words, for shells to complete."""


def method_names() -> list[str]:
    """Return the names of all methods: the built-in ones, then those of other packages."""
    return [*METHODS, *(name for name in entry_names("method") if name not in METHODS)]


def method_of(name: str) -> Method:
    """Return a method by its name; UsageError if there is none, or the package that adds it is broken."""
    if name in METHODS:
        return METHODS[name]
    method = load_entry("method", name, _checked)
    if method is None:
        raise unknown("method", name, method_names())
    return method


def _checked(method: Any) -> Method:
    """Return a method of another package once it is clear that it is one."""
    if not isinstance(method, Method):
        raise TypeError(f"{method!r} is not a schedopt.Method")
    check_declared(getattr(module_of(method), "Parameters", Parameters))
    return method


def methods_where(condition: Callable[[Method], object]) -> list[str]:
    """Return the names of the built-in methods of which something is true, in the registry's order."""
    return [name for name, method in METHODS.items() if condition(method)]


def listed(names: Iterable[str], word: str = "or") -> str:
    """Return names as a sentence has them: `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def default_devices(task: str, methods: Iterable[str]) -> int:
    """Return how many devices a task has where nobody says: the least that any of the methods would have."""
    return 2 if task == "runtime" else min((method_of(name).default_devices for name in methods), default=1)


def module_of(method: Method) -> ModuleType:
    """Import a method's module."""
    entry = method.entry
    return import_module(entry.partition(":")[0]) if isinstance(entry, str) else sys.modules[entry.__module__]


def parameters_class(name: str) -> type[Parameters]:
    """Import a method and return the class of its parameters."""
    kind: type[Parameters] = getattr(module_of(method_of(name)), "Parameters", Parameters)
    return kind


def parameter_fields(name: str) -> list[Field[Any]]:
    """Import a method and return its parameters that may be given."""
    return [field for field in fields(parameters_class(name)) if method_of(name).has(field.name)]


def parameters_of(name: str, **given: Any) -> Parameters:
    """Import a method and return its parameters: some given, the others as they are by default."""
    return parameters_class(name)(**{**method_of(name).fixed, **given})


def load(name: str) -> Any:
    """Import a method and return its `solve(search, parameters)`."""
    method = method_of(name)
    entry = method.entry
    return getattr(module_of(method), entry.partition(":")[2]) if isinstance(entry, str) else entry
