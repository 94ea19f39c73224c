"""Parts of a schedule's peak by role, by phase and by module, as far as the importer noted them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..graph.annotations import Resident
from ..graph.graph import CostGraph
from ..model.timeline import Timeline, timeline_of
from ..problem.problem import Problem
from ..problem.residents import holders
from ..problem.schedule import Addresses, Schedule

RESIDENT_ROLES = {role: f"{role}s" for role in ("parameter", "buffer", "constant", "input", "gradient")}
RESIDENT_ROLES["state"] = "optimizer state"
TENSOR_ROLES = {"forward": "activations", "backward": "gradients", "update": "temporaries of the update", "": "tensors"}
SAVED = "saved activations"
WORKSPACE = "workspace"
UNNAMED = "other persistent bytes"


@dataclass(frozen=True)
class PhasePeak:
    """The step with the most memory of those that run ops of one phase."""

    phase: str  # `forward`, `backward` or `update`
    # bytes on the device that runs it; its number in the schedule, from 1; the op; its module and line
    memory: int
    step: int
    runs: str
    source: str


@dataclass(frozen=True)
class MemoryShares:
    """The bytes on the fullest device at a schedule's peak, split in three ways."""

    # bytes by role, most first: what is resident (`parameters`, `buffers`, `constants`, `inputs`, `optimizer state`,
    # `gradients`), `saved activations` made in the forward and read in the backward, `activations` of the forward
    # alone, `gradients` made in the backward, `temporaries of the update`, and `workspace`. Their sum is the peak.
    roles: Mapping[str, int]
    # bytes by the path of the module whose parameters, tensors or workspace they are, most first; what belongs to none
    # has an empty path. Their sum is the peak.
    modules: Mapping[str, int]
    phases: tuple[PhasePeak, ...]  # the peak within each phase, in the order in which phases begin


def memory_shares(problem: Problem, schedule: Schedule) -> MemoryShares:
    """Split the memory at a schedule's peak by role and by module, and find the peak of each phase."""
    timeline = timeline_of(problem.graph.name, problem, schedule)
    graph, schedule = timeline.problem.graph, timeline.schedule  # of the runs, where ops run several times
    step, device = timeline.peak_step, timeline.fullest_device
    roles: Counter[str] = Counter()
    modules: Counter[str] = Counter()

    def add(role: str, module: str, size: int) -> None:
        roles[role] += size
        modules[module] += size

    parameters = {resident.name for resident in graph.annotations.residents if resident.role == "parameter"}
    paths = graph.annotations.modules or ("",) * graph.num_ops  # an update's is named after its parameter
    module_of = [module.rpartition(".")[0] if module in parameters else module for module in paths]
    role_of = tensor_roles(graph)
    for holding in timeline.alive(step, device):
        add(role_of[holding.tensor], module_of[int(graph.tensor_producer[holding.tensor])], holding.size)
    placement = schedule.placement(graph)
    unnamed = int(timeline.persistent[device])
    for resident, op in zip(graph.annotations.residents, holders(graph), strict=True):
        if op >= 0 and placement[op] == device:
            add(RESIDENT_ROLES[resident.role], _module_of(resident), resident.size)
            unnamed -= resident.size
    add(UNNAMED, "", unnamed)
    item = int(schedule.items[step])
    if item >= 0:
        add(WORKSPACE, module_of[item], int(graph.workspace[item]))
    return MemoryShares(_most_first(roles), _most_first(modules), _phase_peaks(timeline))


def resident_roles(graph: CostGraph) -> dict[str, int]:
    """Return the persistent bytes of a graph by role, most first; unnamed ones are `other persistent bytes`."""
    roles: Counter[str] = Counter()
    for resident in graph.annotations.residents:
        if resident.op >= 0:
            roles[RESIDENT_ROLES[resident.role]] += resident.size
    roles[UNNAMED] = int(graph.persistent.sum()) - roles.total()
    return _most_first(roles)


def tensor_roles(graph: CostGraph) -> list[str]:
    """Return the role of each tensor, which follows from the phases of the op that makes it and those that read it."""
    phases = graph.annotations.phases or ("",) * graph.num_ops
    is_backward = np.array([phase == "backward" for phase in phases], bool)
    pointers, consumers = graph.consumers
    readers = np.repeat(np.arange(graph.num_tensors), np.diff(pointers))
    is_saved = np.zeros(graph.num_tensors, bool)
    is_saved[graph.root[readers[is_backward[consumers] & ~graph.is_control[readers]]]] = True
    roles = []
    for root in graph.root.tolist():
        phase = phases[int(graph.tensor_producer[root])]
        roles.append(SAVED if phase == "forward" and is_saved[root] else TENSOR_ROLES[phase])
    return roles


def largest_modules(modules: Mapping[str, int], share: float = 0.25) -> dict[str, int]:
    """Return bytes by module at the depth that tells most: one with a larger share of all is split into its own."""
    opened = {""}
    total = sum(modules.values())
    while True:
        groups: Counter[str] = Counter()
        deeper: set[str] = set()
        for path, size in modules.items():
            group = _group_of(path, opened)
            groups[group] += size
            if group != path:
                deeper.add(group)
        too_large = {group for group in deeper if groups[group] > share * total}
        if not too_large:
            return _most_first(groups)
        opened |= too_large


def _group_of(path: str, opened: set[str]) -> str:
    """Return the outermost module around a path that is not opened, or the path itself."""
    group, rest = "", path
    while group in opened and rest:
        name, _, rest = rest.partition(".")
        group = f"{group}.{name}" if group else name
    return group


def _module_of(resident: Resident) -> str:
    """Return the path of the module that has a tensor; of optimizer state and gradients, the parameter is before it."""
    if resident.role in ("input", "constant"):
        return ""
    path = resident.name.rpartition(".")[0]
    return path.rpartition(".")[0] if resident.role in ("state", "gradient") else path


def _phase_peaks(timeline: Timeline) -> tuple[PhasePeak, ...]:
    known, items = timeline.problem.graph.annotations, timeline.schedule.items.tolist()
    phases = known.phases
    fullest: dict[str, int] = {}
    memory = timeline.simulation.step_memory.tolist()
    for step, item in enumerate(items):
        if phases and item >= 0 and phases[item] and memory[step] > memory[fullest.setdefault(phases[item], step)]:
            fullest[phases[item]] = step
    return tuple(
        PhasePeak(phase, memory[step], step + 1, timeline.step_name(step), known.source_of(items[step]))
        for phase, step in fullest.items()
    )


def _most_first(sizes: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(((name, size) for name, size in sizes.items() if size), key=lambda pair: (-pair[1], pair[0])))


@dataclass(frozen=True)
class Holder:
    """Bytes alive at the peak: the tensor that holds them, and the ops that still wait for it or its views."""

    # the tensor; bytes; names of ops
    name: str
    size: int
    waiting: tuple[str, ...]
    # what it is, such as `saved activations`, and the module and line that make it; empty if not known
    role: str = ""
    source: str = ""
    offset: int | None = None  # where in the arena it is; None for a schedule without addresses


@dataclass(frozen=True)
class Peak:
    """The step with the most memory, and the tensors alive there, largest first."""

    # its number in the schedule, from 1, the device, and the bytes on it
    step: int
    device: int
    memory: int
    # the op that runs, or the tensor that is transferred; the op's module and line, empty if not known
    runs: str
    # bytes that the op takes while it runs, and that the device holds throughout
    workspace: int
    persistent: int
    holders: tuple[Holder, ...]  # the buffers alive; views are counted with the tensor they share memory with
    source: str = ""


def alive_at_peak(problem: Problem, schedule: Schedule, addresses: Addresses | None = None) -> Peak:
    """List the tensors alive at a schedule's peak; where ops run several times, by their run, and its readers."""
    timeline = timeline_of(problem.graph.name, problem, schedule, addresses)
    graph, schedule = timeline.problem.graph, timeline.schedule
    step, device = timeline.peak_step, timeline.fullest_device
    item = int(schedule.items[step])
    known = graph.annotations
    roles = tensor_roles(graph) if known.phases else [""] * graph.num_tensors
    holders = []
    for holding in timeline.alive(step, device):
        readers = sorted(int(schedule.items[reader]) for reader in holding.readers if reader >= step)
        names = tuple(graph.op_names[op] for op in readers if op >= 0)
        source = known.source_of(int(graph.tensor_producer[holding.tensor]))
        name = graph.tensor_name(holding.tensor)
        offset = None if addresses is None else timeline.offset_of(holding)
        holders.append(Holder(name, holding.size, names, roles[holding.tensor], source, offset))
    return Peak(
        step=step + 1,
        device=device,
        memory=int(timeline.simulation.step_memory[step]),
        runs=timeline.step_name(step),
        workspace=int(graph.workspace[item]) if item >= 0 else 0,
        persistent=int(timeline.persistent[device]),
        holders=tuple(sorted(holders, key=lambda holder: (-holder.size, holder.name))),
        source=known.source_of(item) if item >= 0 else "",
    )
