"""`schedopt.compare`."""

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from ..base.errors import UsageError
from ..experiments.comparison import Comparison, Experiment, ResumeFile, opened, parse_spec
from ..problem.machine import Machine
from ..problem.problem import Task
from ..search.options import CompareOptions
from ..search.registry import COMPARED_METHODS
from .graphs import GraphLike, Note, graphs_of


def compare(
    graphs: GraphLike | Iterable[GraphLike],
    methods: str | Sequence[str] = COMPARED_METHODS,
    *,
    task: Task = "memory",
    devices: int | None = None,
    memory_limit: int | str | None = None,
    bandwidth: float | str | None = None,
    latency: float | str = 0.0,
    evaluations: int | None = None,
    time_limit: float | str | None = None,
    seed: int = 0,
    seeds: int = 1,
    jobs: int = 1,
    reference: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    recompute: bool = False,
    max_overhead: float | str | None = None,
    machine: Machine | str | os.PathLike[str] | None = None,
    op_times: str | os.PathLike[str] | None = None,
    pins: Literal["from-graph"] | None = None,
    replicate: bool = False,
    allocator: str | None = None,
) -> Comparison:
    """Run every method on every graph with every seed, under the same budget.

    Parameters
    ----------
    graphs
        Graphs, paths of CostGraphDef files, and folders of them; one, or several in a list.
    methods
        Names of `schedopt.methods()`, with parameters as in `"brkga:elites=10"`: a list, or one text with commas;
        by default `"input,auto"`.
    task, devices, memory_limit, bandwidth, latency, recompute, max_overhead, machine, op_times, pins, replicate
        The problem that each graph poses, as in `schedopt.solve`.
    allocator
        As in `schedopt.solve`: what a method's runs are compared by is what the allocator reserves. Methods that search
        choose the order for it, the others keep theirs.
    evaluations, time_limit
        Budget of each run, as in `schedopt.solve`.
    seed, seeds
        The first seed, and how many; 0 and 1 by default.
    jobs
        Worker processes, on which the result does not depend; 1 by default.
    reference
        The method that improvements are over; by default the first.
    resume
        A file that finished runs are written to and taken from, so that a comparison goes on where it stopped.

    Returns
    -------
    Comparison
        All runs; printed, it is the table of `schedopt compare`.

    Raises
    ------
    UsageError, FormatError, GraphError
        As in `schedopt.solve`, for any of the graphs.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("chain")
    >>> source = builder.add_op("source", outputs=[1024])
    >>> sink = builder.add_op("sink", inputs=[(source, 0)], outputs=[2048])
    >>> comparison = schedopt.compare(builder.build(), ["input", "lpmf"])
    >>> [(cell.method, cell.peak_memory) for cell in comparison.cells]
    [('input', 3072), ('lpmf', 3072)]
    """
    given = locals()
    experiment = experiment_of(graphs, methods, CompareOptions.picked(given), reference)
    with opened(ResumeFile, resume) as file:
        experiment.resume_from(file)
        experiment.compile()
        return experiment.execute(jobs=experiment.settings.jobs)


def experiment_of(
    graphs: GraphLike | Iterable[GraphLike],
    methods: str | Sequence[str],
    options: CompareOptions,
    reference: str | None,
    note: Note = lambda text: None,
) -> Experiment:
    """Return all runs of a comparison, to be executed."""
    texts = methods.split(",") if isinstance(methods, str) else methods
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"methods are names such as 'auto', not {methods!r}")
    specs = [parse_spec(text) for text in texts if text.strip()]
    return Experiment(graphs_of(graphs, note), specs, options, reference)
