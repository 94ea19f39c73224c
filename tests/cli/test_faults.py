"""What a command does where something around it is broken: outputs, streams, an exception that nobody foresaw."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from schedopt import FormatError
from schedopt.core.files.json_lines import JsonLines

PYTHON = [sys.executable, "-m", "schedopt"]


def start(*words, **options):
    return subprocess.run([*PYTHON, *map(str, words)], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", "Is a directory"),
        ("", "the name of a file to write is empty"),
        ("x" * 300, "File name too long"),
        ("no/such/folder.json", "the folder does not exist"),
        ("a\0b", "null"),
    ],
)
@pytest.mark.parametrize("flag", ["--output", "--plot"])
def test_an_output_that_cannot_be_written_is_told_before_the_search(
    run, diamond_file, tmp_path, monkeypatch, name, reason, flag
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("schedopt.core.solve.solve.solve", lambda *given, **more: pytest.fail("it searched"))
    result = run("solve", diamond_file, flag, name)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    if flag == "--output":
        assert reason in result.stderr
    assert list(tmp_path.iterdir()) == [diamond_file]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_result_that_cannot_be_written_is_printed_and_copied(run, diamond_file):
    result = run("solve", diamond_file, "-m", "lpmf", "--format", "order", "--quiet", "--output", "/dev/full")
    assert result.exit_code == 2
    assert result.stdout.splitlines()[0] == "start"
    copy = re.search(r"No space left on device; a copy is in (\S+)", result.stderr)
    assert json.loads(Path(copy[1]).read_text())["graph"] == "diamond"


@pytest.mark.parametrize("command", ["solve", "compare"])
def test_what_cannot_be_shown_is_written_first(run, diamond_file, tmp_path, monkeypatch, command):
    """As where the reader of a pipe leaves (`| head`)."""

    def leave(*shown):
        raise ZeroDivisionError

    monkeypatch.setattr(f"schedopt.cli.commands.{command}.show", leave)
    result = run(command, diamond_file, "-m", "lpmf", "--output", tmp_path / "kept.json")
    assert isinstance(result.exception, ZeroDivisionError)
    assert json.loads((tmp_path / "kept.json").read_text())


@pytest.mark.parametrize(
    "words",
    [
        ["solve", "g.pbtxt", "--output", "./g.pbtxt"],
        ["solve", "g.pbtxt", "--output", "s.json", "--plot", "s.json"],
        ["solve", "g.pbtxt", "--machine", "m.yaml", "--output", "m.yaml"],
        ["plot", "g.pbtxt", "kept.json", "--output", "link.json"],
        ["compare", "g.pbtxt", "-m", "input", "--resume", "x.jsonl", "--output", "x.jsonl.json", "--plot", "g.png"],
        ["optimize", "g.tflite", "--output", "o.tflite", "--schedule", "./o.tflite"],
        ["optimize", "g.tflite", "--output", "o.tflite", "--schedule", "s.json", "--plot", "s.json"],
        ["pareto", "g.pbtxt", "--resume", "f.json", "--output", "f.json"],
    ],
)
def test_no_result_is_written_over_an_input_or_another_result(run, diamond_file, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    Path("g.pbtxt").write_bytes(Path(diamond_file).read_bytes())
    Path("m.yaml").write_text("devices: [{name: a}]")
    assert run("solve", "g.pbtxt", "-m", "lpmf", "--output", "kept.json").exit_code == 0
    Path("link.json").symlink_to("kept.json")
    Path("x.jsonl.json").symlink_to("x.jsonl")
    before = {path: path.read_bytes() for path in tmp_path.glob("[gmk]*")}
    result = run(*words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "is an input or another output of this command; name another file" in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.glob("[gmk]*")} == before


@pytest.mark.parametrize("command", ["solve", "compare"])
def test_the_reader_of_a_pipe_may_leave(diamond_file, tmp_path, command):
    reader, writer = os.pipe()
    os.close(reader)
    files = ("--output", tmp_path / "kept.json", "--plot", tmp_path / "kept.png")
    words = [*PYTHON, command, diamond_file, "-m", "lpmf", *files]
    assert subprocess.run(list(map(str, words)), stdout=writer, check=False).returncode == 0
    os.close(writer)
    assert all(Path(files[at]).stat().st_size for at in (1, 3))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_that_is_full_is_no_infeasible_problem(diamond_file):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PYTHON, "solve", diamond_file, "-m", "lpmf", "-q"], stdout=full, stderr=-1, check=False)
    assert done.returncode == 74
    assert done.stderr.decode().splitlines()[-1].endswith("cannot be written: No space left on device")


@pytest.mark.slow
def test_a_full_temporary_folder_is_named_and_kernels_are_not_kept_on_a_full_disk(tmp_path):
    """PyTorch and numba fail on a full disk, each in its own way."""
    kernel = "import numpy, schedopt.core.kernels.jit as jit; jit.IndexDataCacheFile.save = full; "
    kernel += "jit.kernel(lambda x: x.size)(numpy.ones(3))"
    command = "import shutil; shutil.disk_usage = lambda path: types.SimpleNamespace(free=0); "
    command += "import schedopt.cli.main as main; main.app = full; from schedopt.cli.start import main; main()"
    for what, code, said, exit_code in (
        ("OSError(28, 'No space left on device')", kernel, "(No space left on device): kernels are not kept", 0),
        ("RuntimeError('unexpected pos 832 vs 726')", command, f"file in {tmp_path}: cannot be written", 74),
    ):
        code = f"import types\ndef full(*given, **more):\n    raise {what}\n{code}"
        environment = {**os.environ, "TMPDIR": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path)}
        (tmp_path / "code.py").write_text(code)
        words = [sys.executable, tmp_path / "code.py"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        assert (done.returncode, done.stderr.count("\n"), said in done.stderr) == (exit_code, 1, True), done.stderr


@pytest.mark.slow
def test_an_unforeseen_exception_is_one_sentence_and_a_file(tmp_path):
    code = "import sys; sys.argv = ['schedopt', 'methods']; import schedopt.cli.main as main; main.app = None; "
    code += "from schedopt.cli.start import main; main()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 70
    (log,) = tmp_path.glob("schedopt-*.log")
    assert done.stderr == (
        "error: TypeError: 'NoneType' object is not callable; this is a bug in schedopt, please report it with "
        f"{log}, which has the traceback\n"
    )
    assert "Traceback" in log.read_text()


@pytest.mark.slow
def test_ctrl_c_while_python_ends_is_the_exit_code_of_the_command():
    code = "import atexit, sys, time; sys.argv = ['schedopt', '--version']; "
    code += "atexit.register(lambda: [print('ending', flush=True), time.sleep(60)]); "
    code += "from schedopt.cli.start import main; main()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True) as process:
        assert [process.stdout.readline().split()[0] for _ in range(2)] == ["schedopt", "ending"]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


@pytest.mark.slow
def test_closed_streams_and_ascii_are_no_bugs(diamond_file, tmp_path):
    command = " ".join([*PYTHON, "solve", "-", "-m", "lpmf", "-q", "<&-"])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: -: the file is empty\n")
    named = tmp_path / "gr\u00e4ph.pbtxt"
    named.write_text(diamond_file.read_text().replace("wide1", "w\u00efde"), encoding="utf-8")
    order = start("solve", named, "-m", "lpmf", "--format", "order", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert order.returncode == 0
    assert "w\\xefde" in order.stdout


@pytest.mark.slow
def test_a_working_folder_that_is_gone_is_told(tmp_path, diamond_file):
    gone = tmp_path / "gone"
    code = f"mkdir {gone} && cd {gone} && rmdir {gone} && {' '.join(PYTHON)} solve {diamond_file} -m lpmf -q -o x.json"
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: x.json: ")


@pytest.mark.slow
def test_escapes_do_not_reach_the_terminal(run, diamond_file, tmp_path):
    path = tmp_path / "bad\x1b[31m.pbtxt"
    path.write_text(diamond_file.read_text().replace('"wide1"', '"wi\\033[2Jde"'))
    for words in (["--format", "order"], [], ["--memory-limit", "1"]):
        result = run("solve", path, "-m", "lpmf", *words)
        assert "\x1b" not in result.stdout + result.stderr
    assert '"wi\\u001b[2Jde"' in run("solve", path, "-m", "lpmf", "--format", "order").stdout
    assert "\\x1b[31m" in run("solve", tmp_path / "no\x1b[31m.pb").stderr
    assert "no\\nfile.pb: cannot be read" in run("solve", tmp_path / "no\nfile.pb").stderr, "errors are one line"


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.01, 0.1, 0.2, 0.4])
def test_ctrl_c_at_the_start_is_no_traceback(diamond_file, delay):
    started = "from schedopt.cli.start import main; print('started', flush=True); main()"  # Python's start is not ours
    command = [sys.executable, "-c", started, "solve", str(diamond_file), "-t", "30s"]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "started\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "schedopt/" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_file_to_resume_from_that_cannot_be_written_is_named(run, diamond_file, tmp_path):
    said = run("compare", diamond_file, "-m", "lpmf", "--resume", "/dev/full")
    last = said.stderr.splitlines()[-1]
    assert (said.exit_code, last) == (2, "error: /dev/full: cannot be used to resume: it is no file")
    lines = JsonLines(path := tmp_path / "runs.jsonl", "runs", "delete it")
    lines._file.close()
    with Path("/dev/full").open("wb", buffering=0) as full:
        lines._file = io.BufferedWriter(full)
        with pytest.raises(FormatError, match=f"^{path}: cannot be written: No space left on device$"):
            lines.write("first", {"value": 1})
        lines.close()


def test_ctrl_c_while_words_are_read_is_told(run, diamond_file, monkeypatch):
    def interrupt(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.core.TyperGroup.parse_args", interrupt)
    result = run("solve", diamond_file)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")
