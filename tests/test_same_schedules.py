"""Schedules of a sample of problems and methods, as they were recorded: a part of tests/bench/same_schedules.py."""

import importlib.util
import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parent / "bench"
SPEC = importlib.util.spec_from_file_location("same_schedules", BENCH / "same_schedules.py")
same_schedules = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(same_schedules)


@pytest.mark.slow
def test_schedules_are_those_recorded(tmp_path):
    recorded = json.loads((BENCH / "same_schedules_sample.json").read_text())
    assert len(recorded) == 200
    assert same_schedules.replay(recorded, tmp_path) == {}
