"""Workers of a command: processes here, or a cluster of Dask or Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Literal

import typer

from ..core.base.errors import ClusterError, UsageError, WorkerRefusedError

Backend = Literal["loky", "dask", "ray"]
BackendOption = Annotated[
    Backend, typer.Option("--backend", help="loky: processes here. dask, ray: the workers of the cluster at --address.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Of the cluster: tcp://HOST:8786 for dask; ray://HOST:10001, or auto on one of its nodes, for ray.",
    ),
]
ClusterJobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", min=1, help="Workers; the result does not depend on it. (default: 1, or all of the cluster)"
    ),
]

# What is said of work that a lost cluster leaves
ELSEWHERE = "the same command goes on from there, without --backend here"


@contextmanager
def workers_of(backend: Backend, address: str | None, jobs: int | None, kept: Callable[[], str]) -> Iterator[int]:
    """Have all parallel work done by the workers that are asked for; yields their number."""
    if backend == "loky":
        if address is not None:
            raise UsageError("--address is of a cluster; give --backend dask or --backend ray with it")
        yield jobs or 1
        return
    from ..core.base.parallel import using
    from ..core.experiments.clusters import EXAMPLES, Cluster

    if address is None:
        examples = " or ".join(f"--address {example}" for example in EXAMPLES[backend])
        raise UsageError(f"--backend {backend} needs the address of a cluster; give {examples}")
    with closing(Cluster(backend, address, jobs)) as cluster, using(cluster):
        try:
            yield cluster.size
        except WorkerRefusedError:
            raise
        except ClusterError as error:
            raise ClusterError(f"{error}; {kept()}") from error
