"""From the shared options of `solve`, `compare` and `train` to problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ..core.graph import CostGraph
    from ..core.problem import Problem
    from .console import Talk


def problem_settings(
    task: str,
    devices: int | None,
    memory_limit: str | None,
    bandwidth: str | None,
    latency: str,
    methods: list[str],
) -> dict[str, Any]:
    """Read the options' texts; the keyword arguments of `Settings` that make the problem.

    One device is the default for memory, two for runtime and for methods that place by nature.
    """
    from ..core.search.registry import default_devices
    from ..core.units import parse_bandwidth, parse_bytes, parse_microseconds, parse_percent

    if devices is None:
        devices = default_devices(task, methods)
    limit = share = None
    if memory_limit is not None and memory_limit.strip().endswith("%"):
        share = parse_percent(memory_limit, "memory limit")
    elif memory_limit is not None:
        limit = parse_bytes(memory_limit, "memory limit")
    return {
        "task": task,
        "devices": devices,
        "memory_limit": limit,
        "memory_limit_share": share,
        "bandwidth": None if bandwidth is None else parse_bandwidth(bandwidth),
        "latency": parse_microseconds(latency),
    }


def make_problem(graph: CostGraph, settings: dict[str, Any]) -> Problem:
    """Return the problem of a graph under these settings."""
    from ..core.comparison.experiment import Settings

    return Settings(**settings).problem(graph)


def read_graphs(arguments: list[str], talk: Talk) -> list[CostGraph]:
    """Read every graph once, named by its file, or by the whole path where files share a name."""
    from collections import Counter
    from dataclasses import replace

    from ..core.files.costgraph import find_graphs, graph_name, read_graph

    paths: dict[Path, Path] = {}
    for path in find_graphs(arguments):
        if paths.setdefault(path.resolve(), path) is not path:
            talk.note(f"{path} is named twice and taken once")
    shared = Counter(map(graph_name, paths.values()))
    names = {path: graph_name(path) if shared[graph_name(path)] == 1 else str(path) for path in paths.values()}
    return [replace(read_graph(path, talk.note), name=name) for path, name in names.items()]
