"""Ctrl-C and SIGTERM: their effect on a command; imports nothing heavy."""

import signal
import sys
from typing import Any

CTRL_C = 130
_CALLED, _OF_WITH = ("__torch_dispatch__", "find_torch_dispatch_rule"), ("__enter__", "__exit__")
_received = 0  # the signal that asked the command to end, 0 for none


def listen() -> None:
    """Raise KeyboardInterrupt on both signals, and remember them: a library that calls Python back may drop it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _raise)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, _raise_again)
    sys.unraisablehook = _tell_unraisable


def interrupted_code() -> int:
    """Return the exit code of an interrupted command: 130, or 143 after SIGTERM."""
    return 128 + (_received or signal.SIGINT)


def check_received() -> None:
    """Raise KeyboardInterrupt if a signal came, where a library may have dropped it."""
    if _received:
        raise KeyboardInterrupt


def is_interrupt(error: BaseException | None) -> bool:
    """Whether a signal is behind an error: Python and libraries may raise another in its place."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _raise(number: int, frame: Any) -> None:
    global _received
    _received = number
    if not _would_abort(frame):
        raise KeyboardInterrupt
    signal.setitimer(signal.ITIMER_REAL, 0.005)  # seconds: an op of a trace takes about a millisecond


def _would_abort(frame: Any) -> bool:
    """Whether C++ of PyTorch that no exception may leave has called Python, or PyTorch enters or leaves a mode."""
    package = "torch"  # of this code, or before contextlib's, which enters and leaves for PyTorch too
    while frame is not None:
        name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__"))
        package = package if module == "contextlib" else module.partition(".")[0]
        is_called = name in _CALLED and package != "schedopt"  # our recorder's can wait
        if is_called or module == "torch.utils._stats" or (package == "torch" and name in _OF_WITH):
            return True
        frame = frame.f_back
    return False


def _interrupt(number: int, frame: Any) -> None:
    """Answer SIGTERM as Ctrl-C is answered now."""
    global _received
    handler = signal.getsignal(signal.SIGINT)
    _received = number
    (handler if callable(handler) else _raise)(number, frame)


def _tell_unraisable(unraisable: Any) -> None:
    """Tell of an exception that was dropped; a dropped Ctrl-C is raised again a moment later."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
    elif _received:
        signal.setitimer(signal.ITIMER_REAL, 0.02)  # seconds: here it would be dropped once more


def _raise_again(number: int, frame: Any) -> None:
    """Answer the signal that was dropped or had to wait."""
    handler = signal.getsignal(_received)
    if callable(handler):
        handler(_received, frame)
