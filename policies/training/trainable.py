"""Facts that a command needs to train a method's network, before torch is loaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.base.errors import UsageError
from ...core.search.registry import METHODS

if TYPE_CHECKING:
    from ...core.graph.graph import CostGraph

_ASIDE = "is set aside to validate on, unless --validation names others; of fewer than ten, none is."
_RESUME = "Ctrl-C leaves a checkpoint; the same command with --resume goes on as if nothing had happened."
_SETTINGS = (
    "Settings are those of --config, or else of the shipped weights; options win over both, and config.yaml in the "
    f"folder shows them all. {_RESUME}"
)
_ORDERS = (
    "Layered graphs are drawn afresh for each epoch; orders to imitate come from a beam search. GRAPHS are taken "
    f"again and again; orders of theirs come from a search, once per graph. A tenth of them {_ASIDE}\n\n"
    "Each epoch ends with a validation: the gaps of greedy, sampled and beam orders to those of a search. The "
    f"weights with the smallest mean gap of samples and beam are kept. {_SETTINGS}"
)
_SCHEDULES = (
    "Synthetic graphs, drawn once, or GRAPHS are taken again and again. Each op is drawn to run on one type of device, "
    f"of the setting types. A tenth of GRAPHS {_ASIDE}\n\n"
    "Each epoch ends with a validation: how much better one pass and the best of 16 are than the rule that the "
    "network corrects. The weights with the largest improvement are kept. Settings are those of --config; options "
    f"win over them, and config.yaml in the folder shows them all. {_RESUME}"
)
_DISTRIBUTIONS = (
    "Synthetic graphs (A.1.4) are drawn when they are first needed, and taken again and again; so are GRAPHS. A "
    f"tenth of those {_ASIDE} What plain BRKGA finds on a graph is searched once and kept in the folder.\n\n"
    "Each epoch ends with a validation: how much better BRKGA is with the network's choices than without, at the "
    "same evaluations. The weights that improve most are kept; the setting keep says by which of the network's "
    "actions that is measured. Settings are those of --config, or else of the shipped weights, or else the "
    f"paper's; options win over all, and config.yaml in the folder shows them. {_RESUME}"
)


class Screen(NamedTuple):
    """The display of a run before training."""

    # says, if it takes long, that kernels are compiled
    compiling: Callable[[], AbstractContextManager[None]]
    # shows how far something is, of a total; gives what to call with the number `done`
    counting: Callable[[str, int], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Work:
    """A run that is asked for."""

    folder: str  # of the run
    settings: Any  # of the trainer's kind
    # given graphs to train and to validate on; none for those that the settings draw
    graphs: list[CostGraph]
    validation: list[CostGraph]
    jobs: int  # worker processes
    resume: bool  # whether there is a run in the folder to go on with


@dataclass(frozen=True)
class Trainable:
    """The network of a method, as a command trains it."""

    method: str
    help: str
    drawn: str  # graphs to train on where none are given
    options: dict[str, str]  # settings that options stand for
    fixed: dict[str, str]  # settings that the method decides

    @property
    def trainer(self) -> Any:
        """Its trainer, a kind of `PhasedTrainer`: `Trainer` of the module that the registry names."""
        return import_module(METHODS[self.method].trainer).Trainer

    def changes(self, given: list[str], options: dict[str, Any]) -> list[str]:
        """Return settings as `network.task=memory`: those of the method, those given, and those of options."""
        made = self.fixed | {setting: options[name] for name, setting in self.options.items()}
        return [*given, *(f"{setting}={value}" for setting, value in made.items() if value is not None)]

    def check(self, given: list[str], start: str) -> None:
        """Raise UsageError if a given setting is one of the method, or of the network of the weights to start from."""
        for name in (setting.partition("=")[0].strip() for setting in given):
            if name in self.fixed:
                raise UsageError(f"--set {name}: is {self.fixed[name]} for schedopt train {self.method}")
            if start and name.removeprefix("network.") not in (name, *self.trainer.same, *self.trainer.added):
                raise UsageError(f"--set {name}: is decided by the weights to start from, {start}")


def trainable_of(method: str) -> Trainable:
    """Return the facts of a method's network."""
    if method == "topoformer":
        return Trainable(method, _ORDERS, "layered ones", {"precision": "precision"}, {})
    if method == "direct":
        return Trainable(method, _SCHEDULES, "synthetic ones", {}, {})
    options, encoder = {"task": "network.task", "devices": "network.devices"}, "lstm" if method == "gas" else "gnn"
    return Trainable(method, _DISTRIBUTIONS, "synthetic ones", options, {"network.encoder": encoder})
