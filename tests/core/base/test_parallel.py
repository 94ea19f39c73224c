"""Work on several processes: in order, not too far ahead, and over when nobody wants more."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from schedopt.core.base.parallel import Workers, map_in_order


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_errors_reach_the_caller(jobs):
    assert list(map_in_order(str, range(20), jobs)) == list(map(str, range(20)))
    results = map_in_order(math.sqrt, [0, 1, 4, -1, 9, 16], jobs)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"math domain|nonnegative"):
        next(results)
    assert list(map_in_order(str, [], jobs)) == []


@pytest.mark.slow
def test_workers_stay_and_give_up_what_has_not_begun(tmp_path):
    with Workers(2) as workers:
        begun = [workers.start(os.getpid) for _ in range(8)]
        processes = {result() for result in begun}
        failed = workers.start(math.sqrt, -1)
        with pytest.raises(ValueError, match=r"math domain|nonnegative"):
            failed()
        later = workers.start(os.getpid)
        for _ in range(100):
            workers.start(time.sleep, 0.05)
        workers.start(Path.touch, tmp_path / "unasked")
        processes.add(later())
    assert os.getpid() not in processes
    assert len(processes) <= 2
    assert not list(tmp_path.iterdir())


def test_one_worker_is_this_process_and_works_when_asked(tmp_path):
    with Workers(1) as workers:
        begun = workers.start(Path.touch, tmp_path / "asked")
        workers.start(Path.touch, tmp_path / "unasked")
        assert not list(tmp_path.iterdir())
        begun()
        assert workers.start(os.getpid)() == os.getpid()
    assert [path.name for path in tmp_path.iterdir()] == ["asked"]


@pytest.mark.slow
def test_workers_end_when_the_process_that_started_them_is_killed():
    code = (
        "import os, time; from schedopt.core.base.parallel import Workers; workers = Workers(2); "
        "print(*{workers.start(os.getpid)() for _ in range(20)}, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        workers = [int(word) for word in process.stdout.readline().split()]
        process.send_signal(signal.SIGKILL)
    assert workers
    for _ in range(100):
        time.sleep(0.1)
        if not any(map(is_running, workers)):
            return
    pytest.fail("a worker outlived its parent")


def is_running(process):
    """Whether there is such a process that has not ended; one that nobody waits for has."""
    state = Path(f"/proc/{process}/stat")
    try:
        os.kill(process, 0)
        return not state.exists() or b") Z " not in state.read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False
