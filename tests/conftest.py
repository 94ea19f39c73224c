"""What all tests share: hypothesis runs the same examples each time, without a clock or a database.

Python looks for garbage among what tests make alone, not among thousands of tests and all that they import. Networks
here are tiny, so that a second thread per op would spend its time waiting for the first one. Ctrl-C is not ignored, as
it is in what a shell starts in the background, for processes that tests start and stop inherit that.
"""

import fcntl
import gc
import os
import signal
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy, torch and DGL are loaded, here and in started processes

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "schedopt",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("schedopt")
MANY = 3000
LOCKS = Path(tempfile.gettempdir()) / f"schedopt-tests-{os.getuid()}.lock"
LOCK = os.open(LOCKS, os.O_RDWR | os.O_CREAT, 0o600)  # each kernel has a byte, which need not be there
compile_at_once = Dispatcher.compile
gc.disable()


def compile_in_turn(dispatcher, signature):
    """Compile a kernel while no other worker does, and take it from the cache where another was first."""
    place = zlib.crc32(f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}".encode())
    with global_compiler_lock:
        fcntl.lockf(LOCK, fcntl.LOCK_EX, 1, place)
        try:
            return compile_at_once(dispatcher, signature)
        finally:
            fcntl.lockf(LOCK, fcntl.LOCK_UN, 1, place)


if "PYTEST_XDIST_WORKER" in os.environ:
    Dispatcher.compile = compile_in_turn


def pytest_collection_finish(session):
    """Let two workers of a run of everything compile the kernels from both ends, each kernel once."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker in ("gw0", "gw1") and len(session.items) > MANY:
        from schedopt.core.search.warm_up import all_runs, warm_up

        runs = all_runs()
        for spec, problem in runs if worker == "gw0" else runs[::-1]:
            warm_up(problem, spec)


def pytest_pycollect_makeitem(collector, name, obj):
    """Make no slow tests, thousands of cases, where none of them is wanted."""
    is_slow = any(mark.name == "slow" for mark in getattr(obj, "pytestmark", ()))
    return [] if is_slow and collector.config.option.markexpr == "not slow" else None


@pytest.fixture(autouse=True)
def _seeded():
    """Let each test find the same random numbers in torch, whatever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory):
    """Return a folder that holds the weights of tiny random networks alone, REGAL's for two and three devices."""
    from models.networks import write_direct_weights, write_regal_weights, write_weights

    folder = tmp_path_factory.mktemp("weights")
    write_weights(folder / "topoformer-layered.safetensors")
    for method, encoder in (("regal", "gnn"), ("gas", "lstm")):
        for task in ("memory", "runtime"):
            for devices in (2, 3):
                path = folder / f"{method}-{task}-{devices}.safetensors"
                write_regal_weights(path, task=task, devices=devices, encoder=encoder)
    write_direct_weights(folder / "direct-runtime-types.safetensors")
    return folder


@pytest.fixture
def tiny_shipped(tiny_weights, monkeypatch):
    """Let the tiny weights stand for those that the package comes with, so that what they give is quick."""
    monkeypatch.setattr("schedopt.policies.networks.shipped.WEIGHTS", tiny_weights)
    return tiny_weights / "topoformer-layered.safetensors"


@pytest.fixture
def two_threads():
    """Let torch compute with two threads, as it does outside of tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
