"""PyTorch programs: import, apply, measure."""

from importlib.metadata import version

from ...base.errors import ProgramError

OLDEST = (2, 9)
"""The first torch whose `torch.export` has all functions used here; training and learned methods need less."""


def refuse_older(found: str) -> None:
    """Raise a `ProgramError` if a version of torch, such as "2.4.1+cpu", is older than `OLDEST`."""
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        raise ProgramError(f"PyTorch programs need torch {'.'.join(map(str, OLDEST))} or later; here is {found}")


refuse_older(version("torch"))
