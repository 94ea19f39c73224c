"""Work on the machines of a cluster of Dask or Ray that is there already.

`cluster.py` is what commands see: a pool of workers, as `core/base/parallel.py` has it.
It talks to a process of its own, `driver.py`, which alone knows the engine: `dask_engine.py` or `ray_engine.py`.
What workers do is in `worker.py`, and how values travel in `content.py`.
"""
