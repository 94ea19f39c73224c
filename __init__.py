"""schedopt: decide where and in which order the ops of a neural network run (least memory or time)."""

from .version import VERSION as __version__

__all__ = ["__version__"]
