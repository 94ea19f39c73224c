"""Questions to a process of its own, so that nothing of this one disturbs the measurement."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ..base.errors import ProgramError

_OWN_ERROR = re.compile(r"^schedopt\.core\.base\.errors\.\w+: ")


def ask(function: str, question: dict[str, Any], about: str | None = None, seconds: float | None = None) -> Any:
    """Call a function `module:function` of `core.programs` with JSON values; return what it returns, as JSON has it."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, function],
            input=json.dumps(question),
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=False,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"},
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(f"{about or question['path']}: the run took more than {seconds:g} s and was ended") from None
    if done.returncode:
        reason = _OWN_ERROR.sub("", (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        if done.returncode < 0:
            reason = f"signal {-done.returncode} ended it, perhaps for lack of memory"
        raise ProgramError(f"{about or question['path']}: the run failed: {reason}")
    return json.loads(done.stdout.splitlines()[-1])  # a library may print before


def digest(kind: object, shape: Sequence[int], data: Any) -> str:
    """Return text that tells tensors apart: type, shape and, of the buffer `data`, all bits."""
    return f"{kind} {tuple(shape)} {hashlib.sha256(data).hexdigest()}"


if __name__ == "__main__":  # in the process that `ask` began
    module, _, name = sys.argv[1].partition(":")
    answer = getattr(import_module(f"schedopt.core.programs.{module}"), name)
    print(json.dumps(answer(**json.load(sys.stdin))))
