"""Clusters of Dask and Ray on the loopback, with the real programs: a head, and workers that can be killed."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ENGINES = [
    pytest.param(
        kind, marks=pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{kind} is not installed")
    )
    for kind, module in (("dask", "distributed"), ("ray", "ray"))
]
START_SECONDS = 120
NO_CLIENT = "Initialization failure from server"
"""Ray's words where what it starts for each client dies or is not there within 30 s, as on a busy machine."""


AWAIT_PROCESSORS = """
import ray, sys, time
while not ray.is_initialized():
    try:
        ray.init(sys.argv[1], log_to_driver=False)
    except ConnectionAbortedError:  # what serves this client died as it started, or was too slow
        time.sleep(1)
while ray.cluster_resources().get("CPU", 0) < int(sys.argv[2]):
    time.sleep(0.2)
"""


class NotStartedError(Exception):
    """An engine did not get a cluster to run."""


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


class Running:
    """A cluster of two workers: its address, and how to kill parts of it."""

    def __init__(self, address):
        self.address, self.workers, self.head, self.folders = address, [], [], []

    def options(self, kind):
        return "--backend", kind, "--address", self.address

    def kill_head(self):
        for process in self.head:
            _kill_group(process)

    def kill_a_worker(self):
        _kill_group(self.workers[0])

    def end(self):
        for process in [*self.workers, *self.head]:
            _kill_group(process)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def _kill_group(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def _start(words, environment):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, **quiet, env=environment, start_new_session=True)


def package_folder():
    """Return the folder from which schedopt is imported: clusters start elsewhere, and may not find it."""
    return str(Path(importlib.util.find_spec("schedopt").origin).parents[1])


def environment_of(folder=None):
    """Return an environment in which workers find the package of a folder, by default the one that is tested."""
    path = os.pathsep.join([str(folder or package_folder()), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    return {**os.environ, "PYTHONPATH": path.strip(os.pathsep), "OMP_NUM_THREADS": "1"}


@contextmanager
def cluster(kind, folder, *, other=None):
    """Run a cluster in a folder; if asked, the second worker has the package of another folder."""
    environments = [environment_of(), environment_of(other)]
    running = _started(kind, folder, environments)
    try:
        yield running
    except AssertionError as error:
        if NO_CLIENT in str(error):
            pytest.skip(f"{kind} serves no client here: {error}")
        raise
    finally:
        running.end()


def _started(kind, folder, environments):
    """Start a cluster, once more if it does not; what an engine cannot start here is no fault of what is tested."""
    try:
        return (_dask if kind == "dask" else _ray)(folder, environments)
    except NotStartedError:
        try:
            return (_dask if kind == "dask" else _ray)(folder, environments)
        except NotStartedError as error:
            pytest.skip(f"{kind} starts no cluster here: {error}")


def _await_port(port, host="127.0.0.1"):
    for _ in range(10 * START_SECONDS):
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise NotStartedError(f"nobody listens at {host}:{port}")


def dask_worker(address, folder, environment, name):
    words = [sys.executable, "-m", "dask", "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    return _start([*words, "--name", name, "--local-directory", str(folder)], environment)


def _dask(folder, environments):
    port = free_port()
    running = Running(f"tcp://127.0.0.1:{port}")
    words = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    running.head.append(_start(words, environments[0]))
    _await_port(port)
    for name, environment in zip(("first", "second"), environments, strict=True):
        running.workers.append(dask_worker(running.address, folder, environment, name))
    from distributed import Client

    with Client(running.address, timeout=START_SECONDS, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_SECONDS)
    return running


def _ray(folder, environments):
    """A head without a CPU, and two nodes of one each; Ray takes this machine's own address for the loopback's.

    Nodes of one machine start one after the other: those that start at once give their sockets the same name, and one
    of them dies. Their workers' and agents' ports are free ones, since by default all nodes have the same.
    """
    import ray as engine

    here = engine.util.get_node_ip_address()
    port, client = free_port(), free_port()
    running = Running(f"ray://{here}:{client}")
    running.folders.append(tempfile.mkdtemp())  # a short name, for its sockets
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    ray += ["--node-ip-address", here, "--object-store-memory", "80000000"]
    ray += ["--min-worker-port", "0", "--max-worker-port", "0"]
    head = ["--head", "--port", str(port), "--ray-client-server-port", str(client), "--num-cpus", "0"]
    head += ["--include-dashboard", "false", "--temp-dir", running.folders[0], *_agent()]
    try:
        running.head.append(_start([*ray, *head], environments[0]))
        _await_port(port, here)
        _await_port(client, here)
        _await_processors(f"{here}:{port}", 0, environments[0])  # nodes give up on a head that is not ready
        for count, environment in enumerate(environments, start=1):
            words = [*ray, "--address", f"{here}:{port}", "--num-cpus", "1", *_agent()]
            running.workers.append(_start(words, environment))
            _await_processors(f"{here}:{port}", count, environments[0])
        _await_processors(running.address, 2, environments[0])  # as a client, which has a server of its own
    except BaseException:
        running.end()
        raise
    return running


def _agent():
    return ["--dashboard-agent-listen-port", str(free_port())]


def _await_processors(address, count, environment):
    command = [sys.executable, "-c", AWAIT_PROCESSORS, address, str(count)]
    try:
        subprocess.run(command, check=True, timeout=START_SECONDS, capture_output=True, env=environment)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        raise NotStartedError((error.stderr or b"no answer").decode()[-1000:]) from error
