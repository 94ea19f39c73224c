"""Files of `schedopt compare`: rows, everything, the printed tables, or drawings, by the ending of the name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.comparison.experiment import Comparison


def write_comparison(comparison: Comparison, per_graph: bool, output: str) -> None:
    """Write a comparison to a .csv, .json or .html file."""
    from pathlib import Path

    from ...core.files.atomic import write_atomically
    from .comparison import as_html

    suffix = Path(output).suffix
    if suffix == ".html":
        text = as_html(comparison, per_graph)
    else:
        text = comparison.csv() if suffix == ".csv" else as_json(comparison)
    write_atomically(output, text)


def draw_to(comparison: Comparison, target: str) -> None:
    """Draw a comparison to a picture file."""
    from pathlib import Path

    from ...core.files.atomic import write_atomically
    from ...core.plots.comparison_charts import draw_comparison
    from ...core.plots.figures import render
    from .comparison import title_of

    figure = draw_comparison(comparison.cells, comparison.methods, comparison.reference, title_of(comparison))
    write_atomically(target, render(figure, Path(target).suffix))


def as_json(comparison: Comparison) -> str:
    """Return settings, summary and runs as a JSON document."""
    from json import dumps

    return dumps(comparison.document(), indent=1) + "\n"
