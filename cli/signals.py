"""Ctrl-C and SIGTERM: their effect on a command; imports nothing heavy."""

import signal
import sys
from opcode import opmap
from typing import Any

CTRL_C = 130
_CALLED = ("__torch_dispatch__", "find_torch_dispatch_rule", "create_module")  # the last loads compiled modules
_OF_WITH = ("__enter__", "__exit__")
received = 0  # the signal that asked the command to end, 0 for none
_call: Any = None  # our call of other code in which it was raised, None while it waits


def listen() -> None:
    """Raise KeyboardInterrupt on both signals, and remember them: a library that calls Python back may drop it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _raise)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, _raise_again)
    sys.unraisablehook = _tell_unraisable


def interrupted_code() -> int:
    """Return the exit code of an interrupted command: 130, or 143 after SIGTERM."""
    return 128 + (received or signal.SIGINT)


def check_received() -> None:
    """Raise KeyboardInterrupt if a signal came, where a library may have dropped it."""
    if received:
        raise KeyboardInterrupt


def is_interrupt(error: BaseException | None) -> bool:
    """Whether a signal is behind an error: Python and libraries may raise another in its place."""
    seen: set[int] = set()  # an error may be its own cause: `raise error from error`
    while error is not None and id(error) not in seen and not isinstance(error, KeyboardInterrupt):
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def _raise(number: int, frame: Any) -> None:
    global received, _call
    waits = _would_abort(frame)
    received, _call = number, None if waits else _our_call(frame)
    signal.setitimer(signal.ITIMER_REAL, 0.005 if waits else 0.3, 0.3)  # seconds: a traced op takes about a millisecond
    if not waits:
        raise KeyboardInterrupt


def _our_call(frame: Any) -> Any:
    """Return where the innermost code of ours is; no frame is kept, nor what it holds."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith("schedopt."):
        frame = frame.f_back
    return (frame and (id(frame), frame.f_lasti)) or ()


def _would_abort(frame: Any) -> bool:
    """Whether C++ of PyTorch that no exception may leave has called Python, is loaded, or enters or leaves a mode."""
    package = "torch"  # of this code, or before contextlib's, which enters and leaves for PyTorch too
    while frame is not None:
        name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__"))
        package = package if module == "contextlib" else module.partition(".")[0]
        is_called = name in _CALLED and package != "schedopt"  # our recorder's can wait
        is_loading = name == "<module>" and frame.f_code.co_code[frame.f_lasti] != opmap["IMPORT_NAME"]
        if is_called or module == "torch.utils._stats" or (package == "torch" and (name in _OF_WITH or is_loading)):
            return True
        frame = frame.f_back
    return False


def _interrupt(number: int, frame: Any) -> None:
    """Answer SIGTERM as Ctrl-C is answered now."""
    global received
    handler = signal.getsignal(signal.SIGINT)
    received = number
    (handler if callable(handler) else _raise)(number, frame)


def _tell_unraisable(unraisable: Any) -> None:
    """Tell of an exception that was dropped; a dropped Ctrl-C is raised again a moment later."""
    global _call
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
    elif received:
        _call = None  # raised again a moment later: here it would be dropped once more


def _raise_again(number: int, frame: Any) -> None:
    """Answer the signal that had to wait, or that other code has dropped; none that ours has seen."""
    handler = signal.getsignal(received)
    if _call is not None and _call != _our_call(frame):
        signal.setitimer(signal.ITIMER_REAL, 0)
    elif callable(handler) and not is_interrupt(sys.exc_info()[1]):
        handler(received, frame)
