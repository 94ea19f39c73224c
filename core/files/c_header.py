"""C headers with the bytes of an arena and the offsets of what lies in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def header_text(name: str, sizes: Mapping[str, int], offsets: Iterable[tuple[str, int]]) -> str:
    """Return a C header: a macro for each size by its name, and for the offset of each buffer, in bytes."""
    prefix = _identifier(name)
    prefix = f"_{prefix}" if prefix[:1].isdigit() else prefix
    values = {f"{prefix}_{_identifier(what)}_BYTES": size for what, size in sizes.items()}
    for number, (buffer, offset) in enumerate(offsets):
        macro = f"{prefix}_{_identifier(buffer)}_OFFSET"
        values[macro if macro not in values else f"{macro}_{number}"] = offset
    lines = [f"#define {macro} {value}" for macro, value in values.items()]
    return "\n".join([f"#ifndef {prefix}_H", f"#define {prefix}_H", "", *lines, "", "#endif", ""])


def _identifier(text: str) -> str:
    """Return the letters and digits of a text as a part of a macro's name."""
    return re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")
