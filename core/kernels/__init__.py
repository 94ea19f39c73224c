"""The numba kernels: arrays and scalars in, arrays and scalars out; their callers check first.

Every kernel has a plain-Python twin in `tests/naive/`.
"""
