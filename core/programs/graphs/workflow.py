"""Workflows in WfCommons' JSON (WfFormat 1.0 to 1.6, https://wfcommons.org): a task is an op, a file is a tensor.

A task reads a file from the one of its ancestors that writes it, and otherwise from outside: such files are residents,
as weights are. A file that is written and never read is kept to the end. The memory that a task's process took is not
that of its files, and is left out.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...base.errors import FormatError
from ...files.reading import read_json, shown
from ...graph.annotations import Resident, bytes_held
from ...graph.graph import CostGraph
from ..options import ImportOptions
from .attributed_graph import AttributedGraph, Attributes, Edge, cost_graph


def read(model: str, options: ImportOptions, note: Callable[[str], None]) -> CostGraph:
    """Read a workflow."""
    try:
        workflow = _Workflow(read_json(model), model, options.default_size)
        written, residents = workflow.graph()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise FormatError(f"{model}: not a workflow of WfCommons: {what}") from error
    graph = cost_graph(written, model, options, note)
    others = "other memory of its tasks"
    note(f"{model}: the workflow's files are its tensors; {others} is left out")
    return replace(graph, annotations=replace(graph.annotations, residents=residents, left_out=(others,)))


class _Workflow:
    """The tasks of a workflow by id: of the format's version 1.5 and later, or all in one list."""

    def __init__(self, document: Any, where: str, default_size: int | None) -> None:
        self.where, self.default_size = where, default_size
        workflow = document["workflow"]
        specification = workflow.get("specification", workflow)
        tasks = specification["tasks" if "tasks" in specification else "jobs"]
        self.tasks: dict[str, Any] = {str(task.get("id", task["name"])): task for task in tasks}
        if len(self.tasks) < len(tasks) or not tasks:
            raise FormatError(f"{where}: two tasks of the workflow have one id, or it has none")
        by_name = {str(task["name"]): key for key, task in self.tasks.items()}
        self.parents: dict[str, dict[str, None]] = {key: {} for key in self.tasks}
        for key, task in self.tasks.items():
            links = [(parent, key) for parent in task.get("parents", ())]
            for ends in (*links, *((key, child) for child in task.get("children", ()))):
                before, after = (end if end in self.tasks else by_name[end] for end in ends)
                self.parents[after][before] = None
        executed = {task["id"]: task for task in workflow.get("execution", {}).get("tasks", ())}
        self.runtimes = {key: {**task, **executed.get(key, {})} for key, task in self.tasks.items()}
        self.sizes = {str(file["id"]): file["sizeInBytes"] for file in specification.get("files", ())}

    def files(self, key: str, link: str) -> list[str]:
        """Return the files that a task reads or writes, each once; `link` is `input` or `output`."""
        task = self.tasks[key]
        named = {f"{f.get('path', '')}{f['name']}": f for f in task.get("files", ()) if f["link"].lower() == link}
        self.sizes.update((name, f.get("sizeInBytes", f.get("size"))) for name, f in named.items())
        return list(dict.fromkeys([*map(str, task.get(f"{link}Files", ())), *named]))

    def size(self, file: str) -> int:
        """Return the bytes of a file."""
        size = self.sizes.get(file, self.default_size)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            what = f"file '{file}' has the size {shown(size)}" if size is not None else f"file '{file}' has no size"
            raise FormatError(f"{self.where}: {what}; give it sizeInBytes, or a default size (--default-size)")
        return size

    def graph(self) -> tuple[AttributedGraph, tuple[Resident, ...]]:
        """Return tasks and their inputs from each other, and the files that come from outside."""
        import networkx as nx

        tasks = nx.DiGraph({key: list(parents) for key, parents in self.parents.items()}).reverse()
        made = {key: self.files(key, "output") for key in self.tasks}
        makers = defaultdict[str, list[str]](list)
        for key, files in made.items():
            for file in files:
                makers[file].append(key)
        edges: list[Edge] = []
        outside: dict[str, list[int]] = {}
        read: set[tuple[str, str]] = set()
        for place, key in enumerate(self.tasks):
            waited = dict(self.parents[key])
            for file in self.files(key, "input"):
                able = makers.get(file, [])
                known = [maker for maker in able if maker in self.parents[key]]
                if able and not known:
                    above = nx.ancestors(tasks, key) if tasks.edges else set(self.tasks) - {key}
                    known = [maker for maker in able if maker in above]
                if not known:
                    outside.setdefault(file, []).append(place)
                    continue
                edges.append(Edge(known[-1], key, {"port": made[known[-1]].index(file)}))
                read.add((known[-1], file))
                waited.pop(known[-1], None)
            edges += [Edge(parent, key, {"control": True}) for parent in waited]
        residents = [Resident(f, "input", self.size(f), readers[0], tuple(readers)) for f, readers in outside.items()]
        persistent = bytes_held(residents)
        nodes: dict[str, Attributes] = {}
        for place, (key, files) in enumerate(made.items()):
            task = self.runtimes[key]
            nodes[key] = {
                "size": [self.size(file) for file in files],
                "final": [(key, file) not in read for file in files] or False,
                "runtime": 1e6 * float(task.get("runtimeInSeconds", task.get("runtime", 0)) or 0),
                "persistent": persistent[place],
            }
        return AttributedGraph(nodes, edges), tuple(residents)
