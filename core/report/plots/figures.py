"""Shared parts of all charts: figures without a display or in a notebook, their bytes, safe texts, units of axes."""

import io
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from ...base.arrays import IntArray
from ...base.errors import UsageError

GREY = "0.82"
PEAK = "tab:red"
COLORS = ("C0", "C1", "C2", "C4", "C5", "C6", "C8", "C9")
_DPI = 150
_MOST_BINS = 2000
_LINES, _ALIKE = ("-", "--", ":", "-."), 4
"""Styles of lines, and how many of one style come before the next."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this many inches, which no window shows."""
    return Figure(figsize=(width, height), layout="constrained")


def render(figure: Figure, suffix: str) -> bytes:
    """Return a figure as `.png`, `.svg` or `.pdf`, the same bytes for the same figure."""
    data = io.BytesIO()
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
    settings: dict[Any, Any] = {"svg.hashsalt": "schedopt", "svg.fonttype": "none"}
    with warnings.catch_warnings(), mpl.rc_context(settings):
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(data, format=suffix.removeprefix("."), dpi=_DPI, metadata=metadata)
    return data.getvalue()


def plain(name: str, longest: int = 48) -> str:
    """Return a name as a text that matplotlib draws as it is, the middle left out of a long one."""
    name = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    if len(name) > longest:
        half = (longest - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    return name.replace("$", r"\$")


def byte_unit(largest: float) -> tuple[float, str]:
    """Return the unit to draw bytes up to `largest` in, as a divisor and a name."""
    power = max(0, (int(largest).bit_length() - 1) // 10)
    return 1024.0**power, _UNITS[power]


def time_unit(largest: float) -> tuple[float, str]:
    """Return the unit to draw microseconds up to `largest` in, as a divisor and a name."""
    return next(((size, unit) for size, unit in ((1e6, "s"), (1e3, "ms")) if largest >= size), (1.0, "us"))


def highest_of_bins(memory: IntArray) -> NDArray[np.intp]:
    """Return at most `_MOST_BINS` indices, of the largest value of each stretch of equal length: the peak is one."""
    if len(memory) <= _MOST_BINS:
        return np.arange(len(memory))
    edges = np.linspace(0, len(memory), _MOST_BINS + 1).astype(np.intp)
    return np.array([low + np.argmax(memory[low:high]) for low, high in pairwise(edges)])


def number_ticks(axes: Axes, which: Sequence[str] = ("x",)) -> None:
    """Write thousands with commas, and whole numbers without decimals."""
    for name in which:
        getattr(axes, f"{name}axis").set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def title_of(graph: str, label: str, longest: int = 48) -> str:
    """Return the title of a schedule's chart: its graph and its label, without a repeated name."""
    return plain(label if graph in label else f"{graph}: {label}", longest)


def line_of(number: int) -> str:
    """Return the style of a line among many, so that neighbours in the circle of colors differ by it, too."""
    return _LINES[number // _ALIKE % len(_LINES)]


def color_of(number: int) -> str:
    """Return the color of a tensor, schedule, device or method: eight that are neither grey nor red, then again."""
    return COLORS[number % len(COLORS)]


def drawn(ax: Axes | None, figure: Callable[[], Figure], draw: Callable[[Axes], object], example: str) -> Axes:
    """Draw on axes, or else a figure, which shows itself in a notebook; return the axes, of a figure the first."""
    if ax is None:
        made = figure()
        show_in_notebook(made)
        return made.axes[0]
    if not isinstance(ax, Axes):
        raise UsageError(f"plot draws on matplotlib axes, not {ax!r}; plot().figure.savefig('{example}') writes a file")
    draw(ax)
    return ax


def show_in_notebook(figure: Figure) -> None:
    """Display a figure under the cell that runs, if a Jupyter kernel runs it; elsewhere do nothing."""
    shell = _shell()
    if getattr(shell, "kernel", None) is None:
        return
    shown: Any = sys.modules["IPython"].display
    shown.display(shown.Image(render(figure, ".png"), retina=True))
    vars(figure)["_ipython_display_"] = partial(_skip_shown, getattr(shell, "execution_count", None))


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _skip_shown(shown_in: int | None) -> None:
    """Do nothing in the cell that has shown the figure; in others, IPython shows it as it shows any."""
    if getattr(_shell(), "execution_count", None) != shown_in:
        raise NotImplementedError
