"""`schedopt train METHOD --recipe`: runs one after the other, each in a folder of its own in that of the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....policies.training.trainable import Trainable, Work
    from ...console import Talk


def check_alone(options: dict[str, Any]) -> None:
    """Refuse options that say what a recipe says."""
    from ....core.base.errors import UsageError

    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name} does not go with --recipe, which says that; change a copy of the recipe's file")


def chained_works(recipe: str, trainable: Trainable, work: Work, talk: Talk) -> Iterator[Work]:
    """Yield the runs of a recipe, each once the one before it is finished; a finished one is not done again."""
    from ....core.base.errors import UsageError
    from ....policies.training.chains import read_chain
    from ....policies.training.run_folder import WEIGHTS, has_checkpoint
    from .runs import split

    runs = read_chain(recipe, trainable.method, trainable.kind.settings)
    folder, start = Path(work.folder), ""
    if any(run.is_given for run in runs) != bool(work.graphs):
        raise UsageError(f"{recipe}: needs {'' if not work.graphs else 'no '}GRAPHS to train on")
    if has_checkpoint(folder / runs[0].name) != work.resume:
        said = "leave out --resume to start" if work.resume else "give --resume to go on, or name another folder"
        raise UsageError(f"{folder}: holds {'no' if work.resume else 'the'} runs of this recipe; {said}")
    for number, run in enumerate(runs, start=1):
        own = folder / run.name
        talk.note(f"run {number} of {len(runs)}, {run.name}, is in {own}")
        settings = replace(run.settings, start=start or run.settings.start, device=work.settings or "cpu")
        graphs = split(work.graphs, work.validation, settings.seed, talk) if run.is_given else ([], [])
        yield replace(
            work, folder=str(own), settings=settings, graphs=graphs[0], validation=graphs[1], resume=has_checkpoint(own)
        )
        start = str(own / WEIGHTS)
