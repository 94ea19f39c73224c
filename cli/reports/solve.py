"""What `schedopt solve` says beside its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...core.result import Result
    from ..console import Talk


def remark(talk: Talk, result: Result) -> None:
    """Say on standard error what the table cannot."""
    from ...core.search.registry import METHODS

    problem = result.problem
    for note in result.notes:
        talk.note(note)
    if problem.task == "runtime" and not problem.graph.runtime.any():
        talk.note(f"{problem.graph.name}: every op has runtime 0, so every schedule takes 0 us")
    elif result.value > result.input_value:
        talk.note("the input order is better than what this method found; --method auto never returns worse")
    if not result.is_repeatable:
        remedy = "; --evaluations repeats exactly" if METHODS[result.method].counts_evaluations else ""
        talk.note(f"time ended or steered the search, so the same seed may give another result{remedy}")
    if not result.is_feasible:
        talk.note("no schedule within the memory limit was found; this is the one of least excess")


def explain(talk: Talk, result: Result) -> None:
    """Say below the table what holds the memory, and what is proven to need no less."""
    if not talk.quiet:
        for sentence in result.explain().splitlines():
            talk.say(sentence)


def draw_result(result: Result, target: str) -> None:
    """Draw the result, and the input order beside it unless that is what was asked for."""
    from ...core.costs.timeline import input_timeline, timeline_of
    from ...core.files.atomic import write_atomically
    from ...core.plots.draw import draw
    from ...core.search.registry import INPUT_METHOD

    timelines = [timeline_of(result.method, result.problem, result.schedule)]
    if result.method != INPUT_METHOD:
        timelines.insert(0, input_timeline(result.problem.graph))
    write_atomically(target, draw(timelines, target))
