"""What tests of the scripts in `examples/` share: running one as a reader would."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPERIMENTS = EXAMPLES / "experiments"


def run(script, *arguments, **more):
    """Run a script of `examples/experiments`, or a file; return what it prints. Environment variables are `more`."""
    schedopt = shutil.which("schedopt", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    environment = {
        **os.environ,
        "SCHEDOPT": schedopt,
        "PATH": f"{Path(schedopt).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": sys.executable,
        **more,
    }
    interpreter = "bash" if str(script).endswith(".sh") else sys.executable
    command = [interpreter, EXPERIMENTS / script, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(printed, method):
    """Return how many rows of the first table begin with a method; remarks follow below it."""
    table, remarks, _ = printed.partition("± is half of")
    assert remarks
    return sum(line.startswith(method) for line in table.splitlines())
