"""The folder of a training run: its config, last checkpoint, best weights, and curve."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, NamedTuple, get_type_hints

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, cuda, nn, optim

from ...core.base.arrays import IndexArray
from ...core.base.errors import FormatError, UsageError
from ...core.base.parallel import map_in_order
from ...core.files.atomic import make_folder, write_atomically
from ...core.files.costgraph import graph_hash
from ...core.files.json_lines import JsonLines, digest_of
from ...core.files.reading import shown
from ...core.files.yaml_files import write_yaml
from ...core.graph.graph import CostGraph
from ...core.problem.problem import Problem
from ...core.search.method_spec import parse_method
from ...core.search.settings import differences, from_plain, plain
from ...core.search.warm_up import warm_up
from ...core.solve.solve import solve
from ...version import VERSION
from ..networks.shipped import described, weights_file
from .settings import Settings, TrainingSettings
from .trainable import Screen

CHECKPOINT, WEIGHTS, CONFIG, CURVE = "checkpoint.safetensors", "weights.safetensors", "config.yaml", "curve.jsonl"


@dataclasses.dataclass
class Place:
    """How far a run is: the next step to do, the best score so far, the time in all, and of how many validations."""

    phase: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    validation_seconds: float = 0.0
    validations: int = 0
    best: float = math.inf
    rollout_best: float = math.inf  # least greedy gap of a run whose baseline is a rollout

    @property
    def is_validated(self) -> bool:
        """Whether there was a validation already; the first one comes before the first step."""
        return self.best < math.inf


@dataclasses.dataclass(frozen=True)
class Checkpoint(Generic[Settings]):
    """The state from which a run continues."""

    path: Path  # the file
    tensors: dict[str, Tensor]  # weights and moments, see `tensors_of`
    parameters: Settings  # settings of the run
    network: Any  # parameters that the network is made from
    place: Place  # how far the run is
    graphs: str  # hash of given graphs, see `hash_of`
    measured: dict[str, list[float]]  # all that was measured in the steps of this epoch, by name
    validation: dict[str, float]  # result of the last validation

    def check_same(self, parameters: Settings, graphs: str) -> None:
        """Raise UsageError if the checkpoint is of a run with other settings or graphs."""
        before, now = plain(self.parameters), plain(parameters)
        if others := differences(before, now | {"checkpoint_seconds": before["checkpoint_seconds"]}):
            remedy = "go on with the same settings, or name another folder"
            raise UsageError(f"{self.path}: is of a run with another {', '.join(others)}; {remedy}")
        if self.graphs != graphs:
            remedy = "go on with the same ones, or name another folder"
            raise UsageError(f"{self.path}: is of a run on other graphs; {remedy}")

    def write(self) -> None:
        """Write the file, whole or not at all."""
        state: dict[str, Any] = {"place": dataclasses.asdict(self.place), "config": plain(self.parameters)}
        state |= {"shape": plain(self.network), "measured": self.measured, "validation": self.validation}
        about = {"schedopt": VERSION, "graphs": self.graphs, **{name: json.dumps(one) for name, one in state.items()}}
        write_atomically(self.path, save(self.tensors, {**about, "digest": _digest(self.tensors, about)}))

    def restore(self, networks: Mapping[str, nn.Module], optimiser: optim.Optimizer) -> None:
        """Give the networks their weights and the optimiser its moments."""
        try:
            for prefix, network in networks.items():
                network.load_state_dict({name: self.tensors[f"{prefix}.{name}"] for name in network.state_dict()})
            moments: dict[int, dict[str, Tensor]] = {}
            for name, value in self.tensors.items():
                if name.startswith("adam."):
                    _, number, moment = name.split(".")
                    moments.setdefault(int(number), {})[moment] = value
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": moments, "param_groups": groups})
        except (KeyError, ValueError, RuntimeError) as error:
            raise FormatError(f"{self.path}: is damaged ({shown(str(error))})") from error


def tensors_of(networks: Mapping[str, nn.Module], optimiser: optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights of networks, by `network.name`, and the moments of Adam, by `adam.number.name`."""
    tensors: dict[str, Tensor] = {}
    for prefix, network in networks.items():
        tensors |= {f"{prefix}.{name}": value for name, value in network.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": value for name, value in state.items()}
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def read_checkpoint(folder: str | Path, kind: type[Settings]) -> Checkpoint[Settings]:
    """Read the checkpoint of a run."""
    path = Path(folder) / CHECKPOINT
    try:
        with safe_open(str(path), "pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        if about.pop("digest", None) not in (None, _digest(tensors, about)):  # none in files of older versions
            raise ValueError("it is damaged")
        settings = from_plain(kind, json.loads(about["config"]), str(path))
        shape = from_plain(get_type_hints(kind)["network"], json.loads(about["shape"]), str(path))
        place, measured, validation = (json.loads(about[name]) for name in ("place", "measured", "validation"))
        return Checkpoint(path, tensors, settings, shape, Place(**place), about["graphs"], measured, validation)
    except (OSError, SafetensorError, AttributeError, KeyError, TypeError, ValueError, UsageError) as error:
        said = f"{path}: is not a checkpoint of schedopt train {kind.command} ({shown(str(error))})"
        raise FormatError(said) from error


def _digest(tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """Return the digest of a checkpoint's content."""
    return digest_of({**about, "tensors": hashlib.sha256(save(tensors)).hexdigest()})


def hash_of(graphs: Sequence[CostGraph], validation: Sequence[CostGraph]) -> str:
    """Return a hash of given graphs, to train and to validate on; empty without any."""
    if not (graphs or validation):
        return ""
    hashes = [[graph_hash(graph) for graph in given] for given in (graphs, validation)]
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def has_checkpoint(folder: str | Path) -> bool:
    """Whether a run in this folder can be gone on with."""
    return (Path(folder) / CHECKPOINT).exists()


def check_device(parameters: TrainingSettings) -> None:
    """Raise UsageError if there is no such device."""
    if parameters.device == "cuda" and not cuda.is_available():
        raise UsageError("device cuda is not available here; use cpu")


def check_ready(work: Any) -> None:
    """Find before the long work any obstacle to a run, a `Work`, starting or going on; make its folder."""
    settings = work.settings
    if work.resume:
        read_checkpoint(work.folder, type(settings)).check_same(settings, hash_of(work.graphs, work.validation))
    check_device(settings)
    if settings.start and not has_checkpoint(work.folder):
        described(weights_file(settings.start), ())
    make_folder(work.folder)


def check_timed(work: Any) -> None:
    """Raise UsageError if a given graph of a `Work` has no runtimes, of which the least makespan is 0."""
    for graph in work.graphs + work.validation:
        if not graph.runtime.any():
            raise UsageError(f"graph {graph.name}: every op has runtime 0, so its least makespan is 0; leave it out")


def open_folder(folder: Path, parameters: TrainingSettings, place: Place) -> None:
    """Make the folder, write the config, and drop the lines that a killed run wrote after its last checkpoint."""
    make_folder(folder)
    try:
        for name in (CHECKPOINT, WEIGHTS, CONFIG, CURVE):
            for unfinished in folder.glob(f".{name}.*"):
                unfinished.unlink()
    except OSError as error:
        raise FormatError(f"{folder}: cannot be written to: {error.strerror or error}") from error
    write_yaml(folder / CONFIG, plain(parameters))
    done = (place.phase + 1, place.epoch) if place.is_validated else (0, 0)
    kept = [line for line in curve_of(folder) if (line["phase"], line["epoch"]) <= done]
    write_atomically(folder / CURVE, "".join(f"{json.dumps(line)}\n" for line in kept))


def has_tensorboard() -> bool:
    """Whether TensorBoard is installed."""
    return find_spec("tensorboard") is not None


def board_of(folder: Path, place: Place) -> AbstractContextManager[Any]:
    """Return a writer of TensorBoard's curves without the events of a killed run; of None without TensorBoard."""
    if not has_tensorboard():
        return nullcontext()
    from torch.utils.tensorboard import SummaryWriter

    first_event = place.step + (place.batch == 0) if place.is_validated else 0
    writer: AbstractContextManager[Any] = SummaryWriter(str(folder), purge_step=first_event)
    return writer


def add_to_curve(folder: Path, board: Any, line: dict[str, float], on_epoch: Callable[..., None]) -> None:
    """Add a line to the curve, and its measures to TensorBoard's, if there is one."""
    try:
        with (folder / CURVE).open("a", encoding="utf-8") as curve:
            curve.write(json.dumps(line) + "\n")
    except OSError as error:
        raise FormatError(f"{folder / CURVE}: cannot be written: {error.strerror or error}") from error
    if board is not None:
        for name, value in line.items():
            if name not in ("phase", "epoch", "step"):
                board.add_scalar(name, value, line["step"])
        board.flush()
    on_epoch(line)


def curve_of(folder: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a run's curve, one per epoch and one before the first."""
    # It is a log, which nothing depends on: what is torn or damaged is left out.
    path, lines = Path(folder) / CURVE, []
    for text in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.is_file() else ():
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            is_line = isinstance(line, dict) and {"phase", "epoch", "step"} <= line.keys()
            if is_line and all(type(value) in (int, float) for value in line.values()):
                lines.append(line)
    return lines


class OrderSearch(NamedTuple):
    """The search for orders to imitate, or to validate against, once per problem; a file keeps them."""

    path: Path  # the file
    method: str
    evaluations: int
    seed: int
    key: Callable[[Problem], str]  # of a problem in the file

    def found(
        self,
        problems: Sequence[Problem],
        jobs: int = 1,
        on_order: Callable[[int], None] = lambda count: None,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> list[IndexArray] | None:
        """Return an order of each problem, or None if told to stop; those on disk are not searched for again."""
        keys = list(map(self.key, problems))
        search = partial(searched_order, self.method, self.evaluations, self.seed)
        with closing(JsonLines(self.path, "orders", "delete the file to search again")) as file:
            known: dict[str, Any] = {key: record["order"] for key, record in file.records.items()}
            wanted = dict(zip(keys, problems, strict=True))
            missing = {key: problem for key, problem in wanted.items() if key not in known}
            on_order(done := len(wanted) - len(missing))
            orders = zip(missing, map_in_order(search, missing.values(), jobs), strict=True)
            for count, (key, order) in enumerate(orders, start=1 + done):
                known[key] = order.tolist()
                file.write(key, {"order": known[key]})
                on_order(count)
                if must_stop():
                    return None
        return [np.array(known[key], np.int32) for key in keys]

    def shown(
        self, screen: Screen, problems: Sequence[Problem], purpose: str, jobs: int, must_stop: Callable[[], bool]
    ) -> list[IndexArray] | None:
        """Compile the method's kernels, and return the same; the screen says how many orders there are."""
        if not problems:
            return []
        with screen.compiling():
            warm_up(problems[0], parse_method(self.method))
        with screen.counting(f"orders {purpose}", len(problems)) as bar:
            return self.found(problems, jobs, lambda done: bar(done=done), must_stop)


def searched_order(method: str, evaluations: int, seed: int, problem: Problem) -> IndexArray:
    """Return the order that a method finds, in a worker."""
    return solve(problem, method, evaluations=evaluations, seed=seed).schedule.op_order()
