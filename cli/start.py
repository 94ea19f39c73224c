"""Entry of the `schedopt` script: the frame of a command; imports nothing heavy, so that Ctrl-C is answered."""

import errno
import os
import signal
import sys

from . import signals
from .signals import CTRL_C, interrupted_code, is_interrupt, listen

UNFORESEEN, UNWRITTEN = 70, 74  # exit codes: a bug in schedopt; standard output cannot be written

_LEAST_ROOM = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    """Run the command line; an exception that nobody foresaw becomes one sentence, and its traceback a file."""
    _prepare_streams()
    listen()
    try:
        from .main import app

        app(prog_name="schedopt")
    except MemoryError:
        _leave("error: memory ran out; give the machine more, or the command a smaller graph or fewer --jobs", 2)
    except SystemExit as leaving:
        _leave("", _flushed(leaving.code))
    except (Exception, KeyboardInterrupt) as error:
        if signals.received or is_interrupt(error):
            _leave("interrupted", CTRL_C)
        _leave(*(_full(error) if _is_full(error) else (_bug(error), UNFORESEEN)))
    _leave("", _flushed(0))


def _prepare_streams() -> None:
    r"""Stand in for closed streams, and show characters that an encoding lacks as `\u2026`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _flushed(code: str | int | None) -> int:
    """Return the exit code, or another one if standard output cannot be written, as where a disk is full."""
    number = code if isinstance(code, int) else 0 if code is None else 1
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return number
    except OSError as error:
        said, number = _full(error)
        print(said, file=sys.stderr)
    return number


def _is_full(error: BaseException) -> bool:
    """Whether a disk has no room; a library says that of a temporary file in words of its own."""
    from shutil import disk_usage
    from tempfile import gettempdir

    try:
        return getattr(error, "errno", None) in _FULL or disk_usage(gettempdir()).free < _LEAST_ROOM
    except OSError:  # no folder for temporary files
        return False


def _full(error: BaseException) -> tuple[str, int]:
    from tempfile import gettempdir

    where = getattr(error, "filename", None) or f"standard output or a temporary file in {gettempdir()}"
    why = getattr(error, "strerror", None) or os.strerror(errno.ENOSPC)
    return f"error: {where}: cannot be written: {why}", UNWRITTEN


def _bug(error: BaseException) -> str:
    """Write the traceback to a file, and return the message."""
    import platform
    import tempfile
    import traceback

    from ..version import VERSION
    from .console import visible

    text = "".join(traceback.format_exception(error))
    about = f"schedopt {VERSION}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n\n{text}"
    what = visible(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="schedopt-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(about)
        where = f"{file.name}, which has the traceback"
    except OSError:
        where = f"this traceback, for which there is no room in a file:\n{text}"
    owner = _owner(error)
    whose = f"{owner}, please look at" if owner else "schedopt, please report it with"
    return f"error: {what}; this is a bug in {whose} {where}"


def _owner(error: BaseException) -> str:
    """Return the methods and generators of another package whose code was running; empty if there was none."""
    from importlib.metadata import entry_points
    from traceback import walk_tb

    running = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
    for kind in ("method", "generator"):
        own = [entry for entry in entry_points(group=f"schedopt.{kind}s") if entry.module.partition(".")[0] in running]
        if own:
            names = " or ".join(f"'{entry.name}'" for entry in own)
            return f"{kind} {names} of package {own[0].dist.name if own[0].dist else own[0].value}"
    return ""


def _leave(said: str, code: int) -> None:
    code = interrupted_code() if code == CTRL_C else code
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(code))  # Ctrl-C while Python ends, which takes a while
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    if said:
        print(said, file=sys.stderr)
    # What could not be written once would be tried again, and complained of, when Python ends.
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if code == interrupted_code():  # a library's thread that nobody waits for would trip over the end of Python
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
