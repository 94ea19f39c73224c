"""Faults put in by hand, one at a time, into a copy of this checkout: which of them fail a test?

    python tests/bench/faults/run.py                  # all, some minutes: kernels with a fault are compiled again
    python tests/bench/faults/run.py --only verifier  # those whose name has this word
    python tests/bench/faults/run.py --check          # only whether each fault has its one place and its tests
    python tests/bench/faults/run.py --referees 60    # does a referee find those of model, verifier, bounds in 60 s?

The place of a fault is found by its text, and a test by its name, so that both survive moves of files. Exits 1 if a
fault fails none of its tests, or if one fails without it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ("cli", "core", "policies", "datasets")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "docs", "*.egg-info")


def place_of(fault, root):
    """Return the one file that a fault's old text is in."""
    found = [path for folder in PRODUCT for path in sorted((root / folder).rglob("*.py"))]
    found = [path for path in found for _ in range(path.read_text().count(fault["old"]))]
    if len(found) != 1:
        sys.exit(f"'{fault['name']}': its old text is in {len(found)} places, not in one; change faults.yaml: {found}")
    return found[0]


def tests_of(fault, root):
    """Return the tests of a fault as pytest takes them."""
    named = []
    for name in fault["tests"]:
        found = [path for path in sorted((root / "tests").rglob("test_*.py")) if f"def {name}(" in path.read_text()]
        if not found:
            sys.exit(f"'{fault['name']}': there is no test {name}; change faults.yaml")
        named += [f"{path}::{name}" for path in found]
    return named


def run_tests(root, tests, cache):
    """Return the first failing test, or an empty text."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "--no-header", "--tb=no", "-m", "", *tests]
    known = {"PYTHONPATH": str(root.parent), "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=root, env={**os.environ, **known}, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode != 1 or not failed:
        sys.exit(f"tests cannot be run: {done.stdout}{done.stderr}")
    return failed[0].replace(str(root), "")


def run_referees(root, names, cache, seconds):
    """Return the first case of some referees that fails, or an empty text."""
    known = {"PYTHONPATH": str(root.parent), "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    script = root / "tests" / "bench" / "referees" / "run.py"
    for name in names:
        command = [sys.executable, script, "--only", name, "--seconds", str(seconds)]
        done = subprocess.run(command, env={**os.environ, **known}, capture_output=True, text=True)
        if done.returncode:
            return next((line for line in done.stdout.splitlines() if line.startswith(f"{name} ")), done.stderr)
    return ""


def try_fault(fault, root, cache, seconds):
    """Put a fault in, run its tests or its referees, and take it out; returns what fails."""
    path = place_of(fault, root)
    text = path.read_text()
    path.write_text(text.replace(fault["old"], fault["new"]))
    is_compiled = "kernels" in path.parts
    own = Path(tempfile.mkdtemp()) if is_compiled else cache  # kernels inline others without a look at their files
    try:
        if seconds:
            return run_referees(root, fault["referees"], own, seconds)
        return run_tests(root, tests_of(fault, root), own)
    finally:
        path.write_text(text)
        if is_compiled:
            shutil.rmtree(own)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--referees", type=float, default=0, metavar="SECONDS", help="run these in place of tests")
    parser.add_argument("--folder", type=Path, help="keep the copy and its compiled kernels here, and use them again")
    arguments = parser.parse_args()
    faults = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
    chosen = [fault for fault in faults if arguments.only in fault["name"]]
    chosen = [fault for fault in chosen if "referees" in fault or not arguments.referees]
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        root, cache = folder / "schedopt", folder / "numba"
        if not root.exists():
            shutil.copytree(ROOT, root, ignore=LEFT_OUT)
        for fault in chosen:
            place_of(fault, root), tests_of(fault, root)
        if arguments.check:
            return 0
        if arguments.referees:
            named = sorted({name for fault in chosen for name in fault["referees"]})
            failed = run_referees(root, named, cache, arguments.referees)
        else:
            failed = run_tests(root, sorted({test for fault in chosen for test in tests_of(fault, root)}), cache)
        if failed:
            sys.exit(f"without a fault: {failed}")
        for fault in chosen:
            failed = try_fault(fault, root, cache, arguments.referees)
            missed += not failed
            print(f"{'found' if failed else 'NOT FOUND'}: {fault['name']}: {failed}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults are found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
