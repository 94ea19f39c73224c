"""One schedule on axes: its memory on one device, a Gantt chart on several."""

from __future__ import annotations

from matplotlib.axes import Axes

from ...base.errors import UsageError
from ...model.timeline import Timeline
from .figures import show_in_notebook
from .gantt import draw_gantt, gantt_figure
from .memory_chart import STACK_TITLE, draw_memory, memory_figure


def plot_schedule(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Draw a schedule on axes, or on a figure of its own, which shows itself in a notebook."""
    several = timeline.problem.devices > 1
    if ax is not None and not isinstance(ax, Axes):
        raise UsageError(f"plot draws on matplotlib axes, not {ax!r}; plot().figure.savefig('plan.svg') writes a file")
    if ax is None:
        figure = gantt_figure([timeline]) if several else memory_figure([timeline])
        show_in_notebook(figure)
        return figure.axes[0]
    if several:
        draw_gantt(ax, timeline)
    else:
        ax.legend(handles=draw_memory(ax, [timeline]), fontsize="small", title=STACK_TITLE)
    return ax
