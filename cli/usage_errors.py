"""What Typer says of a value that it cannot read, in the words of the other errors."""

from __future__ import annotations

import re
from typing import Any

from ..core.base.names import did_you_mean


def reworded(error: Any) -> str:
    """Return the message of a bad parameter, as a sentence that names the value and what may stand there."""
    message = str(error.message).removeprefix("Value error, ")
    if choices := re.findall(r"'([^']*)'", message) if " is not one of " in message else []:
        value, *known = choices
        return f"must be {'one of ' * (len(known) > 1)}{', '.join(known)}, not '{value}'{did_you_mean(value, known)}"
    problems: list[Any] = getattr(error.__cause__, "errors", list)()  # pydantic's, behind newer versions of Typer
    if not problems:
        return message
    wanted = {
        "int_parsing": "a whole number",
        "int_from_float": "a whole number",
        "float_parsing": "a number",
        "greater_than_equal": "at least {ge}",
        "less_than_equal": "at most {le}",
    }.get(problems[0]["type"])
    return (
        f"must be {wanted}, not '{{input}}'".format(**problems[0], **problems[0].get("ctx", {})) if wanted else message
    )
