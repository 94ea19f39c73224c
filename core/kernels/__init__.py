"""The numba kernels: arrays and scalars in, arrays and scalars out; each has a plain twin in `tests/naive/`."""
