"""Names and paths as a terminal may show them: characters that command it are written out."""

from __future__ import annotations

import unicodedata

_KEPT, _END = "\n\t", 0x2070
"""Line ends and tabs pass; behind the last block of punctuation nothing commands a terminal."""
_COMMANDS = {
    code: chr(code).encode("unicode_escape").decode()
    for code in range(_END)
    if unicodedata.category(chr(code)) in ("Cc", "Cf") and chr(code) not in _KEPT
}


def visible(text: str) -> str:
    r"""Return a text with each control and direction character written as Python would, such as `\x1b`."""
    return text.translate(_COMMANDS)
