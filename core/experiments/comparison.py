"""A comparison of methods: its runs, and how to read, save and draw them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ...version import VERSION
from ..base.tables import Printed, csv_of, text_of
from ..report.summaries import Cell, MethodSummary, by_graph, summarise
from ..search.options import CompareOptions
from .report import graph_table, remarks, summary_table, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

SUFFIXES = {".csv": "a row per run", ".json": "settings, summary and runs", ".html": "a page of tables and charts"}


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """Finished runs, in the order graph, method, seed, whatever the number of jobs; printed, the table of all methods.

    Parameters
    ----------
    settings
        What all runs share.
    methods, reference, graphs
        Names, as in the cells.
    cells
        The finished runs; fewer than `planned` if it was interrupted.
    planned
        How many runs belong to it.

    Examples
    --------
    >>> builder = schedopt.GraphBuilder("one")
    >>> op = builder.add_op("op", outputs=[1024])
    >>> comparison = schedopt.compare(builder.build(), "input, lpmf")
    >>> comparison.reference, [(s.method, s.gap_from_bound.mean) for s in comparison.summaries()]
    ('input', [('input', 0.0), ('lpmf', 0.0)])
    >>> comparison.save("runs.csv")
    """

    settings: CompareOptions
    methods: tuple[str, ...]
    reference: str
    graphs: tuple[str, ...]
    cells: tuple[Cell, ...]
    planned: int

    @property
    def is_complete(self) -> bool:
        """Whether every run is finished."""
        return len(self.cells) == self.planned

    def summaries(self) -> list[MethodSummary]:
        """Summarise each method over the graphs; see `summarise`."""
        return summarise(self.cells, self.methods, self.reference)

    def document(self) -> dict[str, Any]:
        """Return settings, summary per method and all cells as plain values for JSON."""
        return {
            "schedopt": VERSION,
            **self.settings.document(),
            "methods": list(self.methods),
            "reference": self.reference,
            "graphs": len(self.graphs),
            "runs": len(self.cells),
            "complete": self.is_complete,
            "summary": [asdict(summary) for summary in self.summaries()],
            "cells": [asdict(cell) for cell in self.cells],
        }

    def csv(self) -> str:
        """Return one row per cell, with a header; what a failed run lacks is empty."""
        return csv_of(map(asdict, self.cells), (field.name for field in fields(Cell)))

    @property
    def title(self) -> str:
        """What was compared: task, graphs, devices, limits, budgets and seeds."""
        return title_of(self.settings, len(self.graphs))

    def report(self, per_graph: bool = False) -> Iterator[RenderableType]:
        """Yield what `schedopt compare` prints; `per_graph` adds a table with a row per graph."""
        from rich.text import Text

        yield Text(self.title, style="bold")
        if not self.cells:
            return
        summaries, task = self.summaries(), self.settings.task
        if per_graph:
            yield graph_table(by_graph(self.cells), self.methods, task)
            yield Text("* the best known" + ", mean over seeds" * (self.settings.seeds > 1))
            yield Text()
        yield summary_table(summaries, self.reference)
        for line in remarks(summaries, self.cells, self.reference, task):
            yield Text(line)

    def summary(self, per_graph: bool = False) -> str:
        """Return what `schedopt compare` prints, as text; `per_graph` adds a table with a row per graph."""
        return text_of(*self.report(per_graph))

    def page(self) -> str:
        """Return a web page that needs no other file: tables that sort by a click, charts, and every graph."""
        from .page import comparison_page

        return comparison_page(self.settings, self.methods, self.reference, self.cells)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a row per run (`.csv`), settings, summary and runs (`.json`), or a page (`.html`)."""
        from ..files.atomic import write_as

        texts = {".html": self.page, ".csv": self.csv, ".json": self.json}
        write_as(path, SUFFIXES, lambda suffix: texts[suffix]())

    def json(self) -> str:
        """Return settings, summary and runs as a JSON document."""
        return json.dumps(self.document(), indent=1) + "\n"

    def plot(self) -> Figure:
        """Draw performance profiles, improvements, and quality against time; in a notebook the figure shows itself."""
        from ..report.plots.comparison_charts import draw_comparison
        from ..report.plots.figures import show_in_notebook

        figure = draw_comparison(self.cells, self.methods, self.reference, self.title)
        show_in_notebook(figure)
        return figure
