"""Ask a module something in a process of its own, so that nothing of this one disturbs what it measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from ..errors import ProgramError


def ask(module: str, question: dict[str, Any], about: str | None = None) -> Any:
    """Run `python -m schedopt.core.programs.MODULE` with a JSON value on its standard input; return the one it prints.

    That is the last line of what it prints; a library may print before.

    Parameters
    ----------
    module
        Run as the main one.
    question
        The keyword arguments of what it runs; its `path` is the file in question.
    about
        What errors call it; by default the path.

    Raises
    ------
    ProgramError
        If the process fails, with the last line of what it says.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"schedopt.core.programs.{module}"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"},
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if done.returncode < 0:
            reason = f"signal {-done.returncode} ended it, perhaps for lack of memory"
        raise ProgramError(f"{about or question['path']}: the run failed: {reason}")
    return json.loads(done.stdout.splitlines()[-1])
