"""Figures that show themselves in a notebook, whatever its plotting backend."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from .figures import render


def show_in_notebook(figure: Figure) -> None:
    """Display a figure under the cell that runs, if a Jupyter kernel runs it; elsewhere do nothing."""
    shell = _shell()
    if getattr(shell, "kernel", None) is None:
        return
    shown: Any = sys.modules["IPython"].display
    shown.display(shown.Image(render(figure, ".png"), retina=True))
    vars(figure)["_ipython_display_"] = partial(_leave_to_others, getattr(shell, "execution_count", None))


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _leave_to_others(shown_in: int | None) -> None:
    """Do nothing in the cell that has shown the figure; in others, IPython shows it as it shows any."""
    if getattr(_shell(), "execution_count", None) != shown_in:
        raise NotImplementedError
