"""Progress on a terminal, and Ctrl-C that keeps finished work: the bar, and a search with its live line."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from .console import Output
from .signals import check_received

if TYPE_CHECKING:
    from rich.text import Text

    from ..core.problem.problem import Problem
    from ..core.programs.pipeline import Observer
    from ..core.report.result import Result
    from ..core.search.method_spec import MethodSpec
    from ..core.search.search import Search

_COMPILING_AFTER = 1.5
_REDRAW_SECONDS = 0.1
_SPINNER_WIDTH, _BAR_WIDTH = 3, 20


def run_with_progress(out: Output, problem: Problem, spec: MethodSpec, **given: Any) -> Result:
    """Compile the kernels, saying so if that takes long, then solve; see `solve_and_place`."""
    # The first Ctrl-C stops the search with its best schedule, another, or one while kernels are compiled, the program.
    from ..core.search.method_spec import check_supported
    from ..core.search.search import Watcher
    from ..core.search.warm_up import warm_up
    from ..core.solve.placed import solve_and_place, warm_up_places

    check_supported(spec, problem, spec.evaluations or given.get("evaluations"), given.get("initial"))
    with compiling(out):
        warm_up(problem, spec, given.get("evaluations"), given.get("jobs", 1))
        warm_up_places(*(given.get(name) is not None for name in ("alignment", "allocator")))
    with interruptible(out, "the best so far") as interrupt, LiveLine(out, f"{spec.name}: starting") as line:
        watcher = Watcher(interrupt, _Searching(line) if out.shows_progress else None)
        return solve_and_place(problem, spec, watcher=watcher, **given)


# Goes on `by` some of the total, 1 by default, or to what is `done` of it; and says `what` is done now, if that is new
Bar = Callable[..., None]


@contextmanager
def progress_bar(out: Output, what: str, total: float) -> Iterator[Bar]:
    """Show progress on a terminal, the time that remains, and a text; yields the function that advances it."""
    # A share has no time beside it: whoever knows it says in the text how long the rest takes.

    def update(by: float = 1, *, done: float | None = None, what: str | None = None) -> None:
        bars.update(bar, advance=None if done is not None else by, completed=done, description=what)

    if not out.shows_progress:
        yield lambda *by, **more: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining
    from rich.table import Column

    cut = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    text = TextColumn("{task.description}", markup=False, table_column=cut)
    amount = (
        (TaskProgressColumn(),)
        if isinstance(total, float)
        else (BarColumn(_BAR_WIDTH), MofNCompleteColumn(), Remaining())
    )
    columns = (*amount, text)
    with Progress(*columns, console=out.console, transient=True, expand=True, speed_estimate_period=600) as bars:
        bar = bars.add_task(what, total=total)
        yield update


@contextmanager
def interruptible(out: Output, what: str) -> Iterator[threading.Event]:
    """Make the first Ctrl-C set the event, which is safe in the middle of any call; the second one raises."""
    check_received()
    interrupt = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        interrupt.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(RuntimeError):  # the signal came amid a write to the same stream
            out.note(f"stopping with {what}; press Ctrl-C again to quit at once")

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def compiling(out: Output) -> Iterator[None]:
    """Say which kernels are compiled, if that takes long: once per installation."""
    from ..core.kernels.compiling import compiling_tells

    said: list[str] = []

    def say() -> None:
        out.note(
            f"compiling kernels ({said[-1]} now), once per installation, which takes up to a minute; "
            "schedopt warm-up compiles all"
        )

    timer = threading.Timer(_COMPILING_AFTER, say)
    timer.daemon = True

    def tell(kernel: str) -> None:
        said.append(kernel)
        if len(said) == 1:
            timer.start()

    with compiling_tells(tell):
        try:
            yield
        finally:
            timer.cancel()
    check_received()


class LiveLine:
    """A line that changes in its place on a terminal; it never takes a second one."""

    def __init__(self, out: Output, text: str) -> None:
        self.console = out.console
        self.status = out.console.status(self._fitting(text)) if out.shows_progress else None

    def __enter__(self) -> LiveLine:
        if self.status is not None:
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def __call__(self, *texts: str) -> None:
        """Say the first of some texts that has room, else the last, cut."""
        if self.status is not None:
            self.status.update(self._fitting(*texts))

    def _fitting(self, *texts: str) -> Text:
        from rich.text import Text

        room = self.console.width - _SPINNER_WIDTH
        text = Text(next((text for text in texts if len(text) <= room), texts[-1]))
        text.truncate(room, overflow="ellipsis")
        return text


class _Searching:
    """Shows on a live line the running method, the best value, the budget used."""

    def __init__(self, line: LiveLine) -> None:
        self.line = line
        self.start = time.monotonic()
        self.next_draw = 0.0

    def __call__(self, search: Search) -> None:
        now = time.monotonic()
        if now < self.next_draw:
            return
        self.next_draw = now + _REDRAW_SECONDS
        problem = search.problem
        best = "none yet" if search.best is None else problem.format_value(problem.shown(search.best_value))
        bound = problem.format_value(problem.shown(search.lower_bound))
        done = f"{search.evaluations:,.0f} evaluation{'s' * (search.evaluations != 1)}"
        if search.max_evaluations < float("inf"):
            done += f" of {search.max_evaluations:,.0f}"
        limit = search.deadline - self.start
        time_ = f"{now - self.start:.0f}" + (f" of {limit:.0f} s" if search.is_timed else " s")
        found, proven = f"{search.working}: best {best}", f"bound {bound}"
        self.line(*map(", ".join, ((found, proven, done, time_), (found, proven, time_), (found, time_), (found,))))


@contextmanager
def stages(out: Output, what: str, searching: str = "") -> Iterator[Observer]:
    """Draw the stages of a job on a terminal, each in place of the one before: its number, its progress, the runs."""
    from ..core.programs.pipeline import Observer

    drawn, line, text = ExitStack(), None, ""

    def draw(words: str) -> None:
        nonlocal line
        line = line or drawn.enter_context(LiveLine(out, what))
        line(f"{what}: {words}", words)

    def on_stage(number: int, total: int, name: str) -> None:
        nonlocal line, text
        drawn.close()
        line, text = None, f"stage {number} of {total}, {name}"
        if name != searching:
            draw(text)

    with drawn:
        yield Observer(
            out.note, on_stage, lambda number, total, order: draw(f"{text}: run {number} of {total}, {order}")
        )
