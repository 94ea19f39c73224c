"""schedopt: decide where and in which order the ops of a neural network run (least memory or time)."""

import sys

from .version import VERSION as __version__

TYPE_CHECKING = False  # as typing has it, whose import takes longest here: Ctrl-C is answered after it
if TYPE_CHECKING:
    from .core.api import testing
    from .core.api.compare import compare
    from .core.api.diff import diff
    from .core.api.fit import fit
    from .core.api.import_ import import_model
    from .core.api.methods import methods
    from .core.api.networkx_graphs import from_networkx, to_networkx
    from .core.api.optimize import optimize
    from .core.api.pack import PackedBuffers, pack
    from .core.api.pareto import pareto
    from .core.api.solve import solve
    from .core.api.verify import verify
    from .core.base.errors import (
        FormatError,
        GraphError,
        OtherGraphError,
        ProgramError,
        SchedoptError,
        ScheduleError,
        TrainingError,
        UnknownNameError,
        UsageError,
    )
    from .core.experiments.comparison import Comparison
    from .core.files.costgraph import read_graph, write_graph
    from .core.files.machine_yaml import read_machine
    from .core.files.schedule_json import read_schedule
    from .core.graph.builder import GraphBuilder
    from .core.graph.graph import CostGraph
    from .core.problem.machine import Device, Machine
    from .core.problem.problem import Problem
    from .core.problem.schedule import Schedule
    from .core.programs.pytorch.inductor_hook import inductor
    from .core.report.result import Result
    from .core.search.parameters import Parameters, parameter
    from .core.search.registry import Method
    from .core.search.search import Search

__all__ = [
    "Comparison",
    "CostGraph",
    "Device",
    "FormatError",
    "GraphBuilder",
    "GraphError",
    "Machine",
    "Method",
    "OtherGraphError",
    "PackedBuffers",
    "Parameters",
    "Problem",
    "ProgramError",
    "Result",
    "SchedoptError",
    "Schedule",
    "ScheduleError",
    "Search",
    "TrainingError",
    "UnknownNameError",
    "UsageError",
    "__version__",
    "compare",
    "diff",
    "fit",
    "from_networkx",
    "import_model",
    "inductor",
    "methods",
    "optimize",
    "pack",
    "parameter",
    "pareto",
    "read_graph",
    "read_machine",
    "read_schedule",
    "solve",
    "to_networkx",
    "verify",
    "write_graph",
]

_MODULES = {
    "api.compare": ["compare"],
    "api.diff": ["diff"],
    "api.fit": ["fit"],
    "api.import_": ["import_model"],
    "api.methods": ["methods"],
    "api.networkx_graphs": ["from_networkx", "to_networkx"],
    "api.optimize": ["optimize"],
    "api.pack": ["PackedBuffers", "pack"],
    "api.pareto": ["pareto"],
    "api.solve": ["solve"],
    "api.verify": ["verify"],
    "base.errors": [name for name in __all__ if name.endswith("Error")],
    "experiments.comparison": ["Comparison"],
    "files.costgraph": ["read_graph", "write_graph"],
    "files.machine_yaml": ["read_machine"],
    "files.schedule_json": ["read_schedule"],
    "graph.builder": ["GraphBuilder"],
    "graph.graph": ["CostGraph"],
    "problem.machine": ["Device", "Machine"],
    "problem.problem": ["Problem"],
    "problem.schedule": ["Schedule"],
    "programs.pytorch.inductor_hook": ["inductor"],
    "report.result": ["Result"],
    "search.registry": ["Method"],
    "search.parameters": ["Parameters", "parameter"],
    "search.search": ["Search"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import what is behind a public name when it is first asked for."""
        from importlib import import_module

        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".core.{_MODULE_OF[name]}", __name__), name)
        globals()[name] = value
        return value

    testing = sys.modules[f"{__name__}.testing"] = type(sys)(f"{__name__}.testing")
    testing.__getattr__ = lambda name: getattr(__import__(f"{__name__}.core.api.testing", fromlist=[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
