"""Compilation of every kernel: cached on disk, without the interpreter lock, without reference counts."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import njit
from numba.core.caching import IndexDataCacheFile

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a kernel at its first call."""
    return _compiled(function)


def inlined(function: Function) -> Function:
    """Compile a function into the kernels that call it."""
    return _compiled(function, inline="always")


def _compiled(function: Function, **options: str) -> Function:
    dispatcher = njit(cache=_IS_CACHED, nogil=True, _nrt=False, no_cfunc_wrapper=True, **options)(function)
    if _IS_CACHED:
        dispatcher._cache._cache_file.__class__ = _CacheFile
    return cast(Function, dispatcher)


class _CacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's cache of a kernel; nothing if it is of a version of schedopt that had other types."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            return {}

    def save(self, key: Any, data: Any) -> None:
        """Keep a kernel, unless the disk is full."""
        try:
            super().save(key, data)
        except OSError as error:
            _tell_unkept(f"{self._cache_path} cannot be written to ({error.strerror})", None)


def _finds_cache() -> bool:
    """Whether kernels are kept on disk: beside their files, in the home directory, or else in a temporary folder."""
    if _has_place():
        return True
    folder = _own_folder(Path(tempfile.gettempdir()) / f"schedopt-kernels-{os.getuid()}")
    if folder is not None:
        # Worker processes find it there, too.
        numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = str(folder)
    _tell_unkept("neither the installation nor a home directory can be written to", folder)
    return folder is not None and _has_place()


@cache
def _tell_unkept(why: str, folder: Path | None) -> None:
    kept = "not kept, and compiled again by every command" if folder is None else f"kept in {folder}"
    logging.getLogger("schedopt").warning(
        "note: %s: kernels are %s; set NUMBA_CACHE_DIR to a folder of your own with room", why, kept
    )


def _has_place() -> bool:
    try:
        njit(cache=True)(_has_place)
    except (RuntimeError, OSError):  # numba: "no locator available"; a folder in NUMBA_CACHE_DIR cannot be made
        return False
    return True


def _own_folder(folder: Path) -> Path | None:
    """Make a folder that nobody else can write to, as the cache is code; None if it cannot be."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_own else None


_IS_CACHED = _finds_cache()
