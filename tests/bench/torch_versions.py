"""Run the tests of PyTorch programs on several versions of torch, each in an environment of its own.

    TORCH_VERSIONS="2.13.0 2.14.1" python tests/bench/torch_versions.py [PYTEST OPTION ...]

Each environment, `build/torch-VERSION`, has gigabytes; it is kept for the next run. All other packages are those of
`constraints.txt`, except sympy and setuptools, which some versions of torch pin.
"""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = "tests/core/programs/pytorch"
FREED = re.compile(r"(torch|sympy|setuptools)==.*\n")


def environment(version: str) -> Path:
    """Make the environment of a version of torch, and return its Python."""
    folder = ROOT / "build" / f"torch-{version}"
    venv.create(folder, with_pip=True, symlinks=True)
    constraints = folder / "constraints.txt"
    constraints.write_text(FREED.sub("", (ROOT / "constraints.txt").read_text()))
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "-c", constraints, ".[test]", f"torch=={version}"]
    subprocess.run(install, cwd=ROOT, check=True)
    return python


def tested(version: str, options: list[str]) -> str:
    """Run the tests on a version of torch, and return the names of failed tests and the summary."""
    command = [environment(version), "-m", "pytest", TESTS, "--tb", "short", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "".join([*failed, lines[-1]])


def main() -> None:
    """Print a paragraph per version; the exit status is 1 if one cannot be installed."""
    found = {version: tested(version, sys.argv[1:]) for version in os.environ["TORCH_VERSIONS"].split()}
    for version, summary in found.items():
        print(f"\ntorch {version}, Python {sys.version.split()[0]}\n{summary}", end="")


if __name__ == "__main__":
    main()
