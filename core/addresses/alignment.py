"""What offsets are multiples of, as people give it."""

from __future__ import annotations

from ..base.errors import UsageError
from ..base.units import parse_bytes
from .lifetimes import LARGEST_ALIGNMENT

DEFAULT_ALIGNMENT = 64


def alignment_of(addresses: bool, align: int | str | None) -> int | None:
    """Return the alignment that is asked for, bytes; None if no addresses are."""
    if not isinstance(addresses, bool):
        raise UsageError(f"addresses is true or false, not {addresses!r}")
    if align is None:
        return DEFAULT_ALIGNMENT if addresses else None
    if not addresses:
        raise UsageError("--align is of --addresses, in Python addresses=True; give that, too")
    alignment = parse_bytes(align, "alignment")
    if not 1 <= alignment <= LARGEST_ALIGNMENT:
        raise UsageError(f"the alignment must be from 1 to 2^31 bytes, not {alignment}")
    return alignment
