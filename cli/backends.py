"""Where the workers of a comparison run: processes here, or a cluster of Dask or Ray, through joblib."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Backend(str, enum.Enum):
    """Where joblib runs the workers."""

    loky = "loky"
    dask = "dask"
    ray = "ray"


@contextmanager
def joblib_jobs(backend: Backend, jobs: int) -> Iterator[int]:
    """Make joblib use a backend; yields the number of jobs to ask it for, -1 for all of a cluster.

    Raises
    ------
    UsageError
        If the backend's package is not installed.
    """
    from joblib import parallel_config

    if backend is Backend.loky:
        yield jobs
    elif backend is Backend.dask:
        with _dask_client(jobs), parallel_config("dask"):
            yield -1
    else:
        _register_ray()
        with parallel_config("ray"):
            yield jobs if jobs > 1 else -1


def _dask_client(jobs: int) -> Any:
    try:
        import dask  # type: ignore[import-not-found, import-untyped]
        from distributed import Client  # type: ignore[import-not-found, import-untyped]
    except ImportError as error:
        raise _missing("dask", "distributed", error) from error
    address = dask.config.get("scheduler-address", None)
    if address:
        return Client(address)
    # One thread each, so that processor times are of one run.
    return Client(n_workers=jobs if jobs > 1 else None, threads_per_worker=1, dashboard_address=None)


def _register_ray() -> None:
    try:
        import ray  # type: ignore[import-not-found, import-untyped]
        from ray.util.joblib import register_ray  # type: ignore[import-not-found, import-untyped]
    except ImportError as error:
        raise _missing("ray", "ray", error) from error
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    register_ray()


def _missing(backend: str, package: str, error: ImportError) -> Exception:
    from ..core.errors import UsageError

    return UsageError(f"--backend {backend} needs a package ({error}); pip install {package}")
