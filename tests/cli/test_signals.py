"""Signals at two moments of every command: its exit code, no traceback, and nothing half done."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from models.signals import COMMANDS, interrupted, prepare

pytestmark = pytest.mark.slow
_DELETED = "type('D', (), {{'__del__': lambda self: {}}})()"
SIGNALS = [(way, moment) for way in ("SIGTERM", "Ctrl-C") for moment in (0.3, 4.0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signals")
    prepare(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_a_command_with_its_exit_code(folder, tmp_path, command):
    """All at once, each in a folder of its own."""

    def end(way, moment):
        own = shutil.copytree(folder, tmp_path / f"{way}-{moment}")
        return interrupted(own, COMMANDS[command], way, moment)

    with ThreadPoolExecutor(len(SIGNALS)) as threads:
        ended = dict(zip(SIGNALS, threads.map(end, *zip(*SIGNALS, strict=True)), strict=True))
    assert {signal: wrong for signal, (wrong, _) in ended.items() if wrong} == {}
    assert all(seconds < 60 for _, seconds in ended.values())


@pytest.mark.parametrize(("name", "code"), [("SIGINT", "130"), ("SIGTERM", "143")])
@pytest.mark.parametrize("by", [_DELETED, r"exec('try: {}\nexcept BaseException: pass')"])
def test_a_signal_that_other_code_drops_is_raised_again(name, code, by):
    drop = by.format(f"signal.raise_signal(signal.{name})")
    script = f"import signal, time; from schedopt.cli import signals; signals.listen()\ntry: {drop}; time.sleep(20)\n"
    script += "except KeyboardInterrupt: print(signals.interrupted_code()); signal.setitimer(signal.ITIMER_REAL, 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{code}\n", "")


@pytest.mark.parametrize(
    ("error", "after"),
    [
        ("RuntimeError", "finally"),
        ("schedopt.ProgramError", "finally"),
        ("KeyError", "except BaseException: pass\n    if 1"),
    ],
)
def test_an_error_in_place_of_an_interrupt_is_one(error, after):
    """Python 3.11 raises RuntimeError in its place where a class is made, as in an import."""
    script = f"""import signal, typer, schedopt; from schedopt.cli import main, start
def work():
    try: signal.raise_signal(signal.SIGTERM)
    {after}: raise {error}("in its place")
main.app = typer.Typer(cls=main.ErrorBoundary, pretty_exceptions_enable=False)
main.app.command()(work); main.app.callback()(lambda: None)
import sys; sys.argv[1:] = ["work"]; start.main()"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "interrupted\n")


def test_an_error_that_is_its_own_cause_is_no_interrupt(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.py").write_text(
        "def make():\n    try: 1 / 0\n    except Exception as error: raise error from error"
    )
    done = run("import", "own:make", "--output", tmp_path / "g.pb")
    assert done.exit_code == 2 and "make() failed at own.py:3: division by zero" in done.stderr


def test_a_signal_waits_while_pytorch_is_loaded():
    """Its C++ asks Python whether a module of it is loaded, and ends the process if that raises."""
    script = """import opcode, signal, sys, time; from schedopt.cli import signals
def raised(frame, event, arg):
    of, importing = frame.f_back, opcode.opmap["IMPORT_NAME"]
    is_called = frame.f_code.co_name == "_lock_unlock_module" and of.f_code.co_code[of.f_lasti] != importing
    if is_called and of.f_globals["__name__"] == "torch.distributed":
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)
signals.listen(); sys.setprofile(raised)
try: import torch; time.sleep(20)
except KeyboardInterrupt: print("whole"); signal.setitimer(signal.ITIMER_REAL, 0)"""
    assert subprocess.run([sys.executable, "-c", script], stdout=-1, check=True).stdout == b"whole\n"


def test_a_signal_waits_where_pytorch_would_abort():
    script = """import signal, time, torch; from schedopt.cli import signals
class Placed(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, op, *_):
        if op is torch.ops.prim.device.default: return signal.raise_signal(signal.SIGINT) or torch.device("cpu")
        return torch.Tensor._make_wrapper_subclass(cls, (3,), dispatch_device=True, requires_grad=op is None)
x, _ = Placed.__torch_dispatch__(None), signals.listen()
try: x.neg(); time.sleep(20)
except KeyboardInterrupt: print("whole"); signal.setitimer(signal.ITIMER_REAL, 0)"""
    assert subprocess.run([sys.executable, "-c", script], stdout=-1, check=True).stdout == b"whole\n"
