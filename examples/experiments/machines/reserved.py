"""Runs on a machine with other work: a share of the cores is reserved for short runs, and the rest stays with others.

Linux' deadline scheduling lets a thread run for `runtime` in each `period` before all others, and no longer. Threads of
a session get a small share each; between runs the program sleeps. Needs root.
"""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

SETATTR = {"x86_64": 314, "aarch64": 274}
NORMAL, DEADLINE, RESET_ON_FORK = 0, 6, 1
PERIOD = 0.4
STARTED = 0.002


class Attributes(ctypes.Structure):
    """`struct sched_attr` of Linux."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("size", "policy")),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("runtime", "deadline", "period")),
    )


def reserve(thread=0, runtime=0.04, period=PERIOD):
    """Reserve seconds of each period for a thread; 0 is the calling one."""
    nanoseconds = [int(1e9 * seconds) for seconds in (runtime, period, period)]
    _set(thread, Attributes(ctypes.sizeof(Attributes), DEADLINE, RESET_ON_FORK, 0, 0, *nanoseconds))


def release(thread=0):
    """Give a thread back to the scheduler of all others."""
    _set(thread, Attributes(ctypes.sizeof(Attributes), NORMAL))


def _set(thread, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SETATTR[os.uname().machine], thread, ctypes.byref(attributes), 0):
        error = ctypes.get_errno()
        sys.exit(f"no share of the cores can be reserved: {os.strerror(error)}; it needs root")


class Demoter:
    """Takes the share from the caller of a plan as soon as it has started the streams: then it only waits for them."""

    def __init__(self):
        self.caller = threading.get_native_id()
        self.is_begun, self.is_done = threading.Event(), threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def begin(self):
        """Say that a run begins."""
        self.is_done.clear()
        self.is_begun.set()

    def _work(self):
        reserve(runtime=0.001)
        while True:
            self.is_begun.wait()
            self.is_begun.clear()
            time.sleep(STARTED)
            release(self.caller)
            self.is_done.set()


def threads():
    """Return the numbers of this process' threads."""
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


def spans_in_turns(runner, ways, turns, share):
    """Run each way once a turn, its threads with a share reserved; return the kernels of each way's runs.

    A span is from the first kernel's start to the last one's end by ONNX Runtime's profile: who called a plan gives way
    to its streams, and may see its end late.
    """
    from schedopt.core.programs.onnx.session import kernel_spans

    demoter = Demoter()
    sessions = {}
    for way in ways:
        before = threads()
        sessions[way] = runner.session(way, str(runner.folder))
        for thread in threads() - before:
            reserve(thread, share)
    for _ in range(1 + turns):
        for way, session in sessions.items():
            is_called = runner.partitions.get(way) is None  # on one stream the caller works
            reserve(0, share, PERIOD if is_called else 5 * PERIOD)  # a later deadline gives way to the streams
            if not is_called:
                demoter.begin()
            session.run(None, runner.inputs)
            if not is_called:
                demoter.is_done.wait()
            release()
            time.sleep(PERIOD / len(ways))
    runs = {}
    for way, session in sessions.items():
        kernels = kernel_spans(session)
        length = len(kernels) // (1 + turns)
        runs[way] = [kernels[run * length : (run + 1) * length] for run in range(1, 1 + turns)]
    return runs
