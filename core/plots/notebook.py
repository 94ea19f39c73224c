"""Figures that show themselves in a notebook, whatever its plotting backend."""

from __future__ import annotations

import sys
from typing import Any

from matplotlib.figure import Figure

from .figures import render


def show_in_notebook(figure: Figure) -> None:
    """Display a figure under the cell that runs, if a Jupyter kernel runs it; elsewhere do nothing.

    The figure is one that pyplot does not know, as all of schedopt's, so that no backend shows it once more.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return
    shown: Any = sys.modules["IPython"].display
    shown.display(shown.Image(render(figure, ".png"), retina=True))
