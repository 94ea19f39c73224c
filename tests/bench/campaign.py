"""Damaged files of every format, random instances in three ways, an allocator's kernel and its twin: does one differ?

    python tests/bench/campaign.py files --each 40000 --out campaign.jsonl          # a million in all
    python tests/bench/campaign.py files --formats dot,onnx --each 1000 --out campaign.jsonl
    python tests/bench/campaign.py instances --each 100000 --out campaign.jsonl
    python tests/bench/campaign.py traces --each 1000000 --jobs 1 --out campaign.jsonl

`files` damages small true files (bits, bytes, pieces, numbers, values of JSON, fields of ONNX, offsets of TFLite) and
reads them in this process, on all cores, under 2 GiB beyond what the reader itself takes and 10 s; models are read as
if none of them could be run. A file is either read or refused by a `SchedoptError`; anything else is a finding: a line
with format, seed and error, from which `--show FORMAT SEED` writes the file again.
`instances` draws tiny graphs and schedules: the simulator and the verifier agree on each schedule, and every method on
the least peak or makespan that exhaustive search finds. `traces` draws options, sizes, streams and capacities of
PyTorch's caching allocator: the kernel and its twin agree on each address, on bytes reserved and on retries.
Work is cut into chunks of seeds; a chunk that is in the file of `--out` is not done again.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from models import true_files

CHUNK = 500
SECONDS, MOST_BYTES = 10, 2 * 2**30
MOST_FINDINGS, MOST_LETTERS = 20, 300
_NUMBERS = ("-1", "0", "1", "2", "63", "64", "65", "2147483648", "9223372036854775807", "9223372036854775808", "1e308",
            "1e-320", "1e400", "-0.0", "NaN", "Infinity", "9" * 5000, "0x10", "١")  # fmt: skip
_VALUES = (None, True, False, 0, -1, 2**63, 10**30, 1.5, 1e308, float("inf"), float("nan"), "", "x", "\x1b[2J",
           "\ud800", [], [[]], {}, {"a": 1}, [None], "9" * 5000)  # fmt: skip
_PIECES = (b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r\n", b"{", b"}", b"[", b"]", b'"', b"\\", b"/*", b"#", b"<",
           b"*a", b"&a ", b"{" * 3000, b"[" * 100_000, b"\x1b[31m", b"\xff" * 9 + b"\x01", b"\x80" * 12)  # fmt: skip


def damaged(data: bytes, rng: random.Random, more=()) -> bytes:
    """Return a file with one to four kinds of damage, some of its format."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice((*_DAMAGES, *more))(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _drop(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 4, 40)) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(_PIECES) + data[at:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at : at + rng.choice((2, 30, 300))] * rng.choice((2, 50)) + data[at:]


def _number(data: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not found:
        return _flip(data, rng)
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(_NUMBERS).encode() + data[match.end() :]


def _value(data: bytes, rng: random.Random) -> bytes:
    """Replace, drop or double a value of a JSON document, or of one of its lines."""
    lines = data.split(b"\n") if data.count(b"\n{") else [data]
    at = rng.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except (ValueError, RecursionError):
        return _number(data, rng)
    holder, key = {"": document}, ""
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.85:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    if holder is not document and key == "":
        document = rng.choice(_VALUES)
    elif rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = [holder[key]] if rng.random() < 0.1 else rng.choice(_VALUES)
    lines[at] = json.dumps(document).encode()
    return b"\n".join(lines)


def _word(data: bytes, rng: random.Random) -> bytes:
    """Set an offset or a count behind the first eight bytes, which tell what the file is, to a small or large one."""
    if len(data) < 16:
        return data
    at = rng.randrange(8, len(data) - 4)
    value = rng.choice((0, 1, 4, 0x7FFFFFFF, 0xFFFFFFFF, len(data), len(data) - at, 1 << 20))
    return data[:at] + value.to_bytes(4, "little") + data[at + 4 :]


def _field(data: bytes, rng: random.Random) -> bytes:
    """Change a field of an ONNX model: numbers, names, what a field holds, what is listed and in which order."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        return _flip(data, rng)
    _change(model, rng)
    return model.SerializeToString()


def _change(message, rng: random.Random) -> None:
    """Change one field, deeper with each message that is in the way."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    is_list = not isinstance(value, (str, bytes, int, float)) and not hasattr(value, "ListFields")
    if rng.random() < 0.08:
        message.ClearField(field.name)
    elif is_list and len(value):
        at = rng.randrange(len(value))
        if field.message_type is not None and rng.random() < 0.9:
            _change(value[at], rng)
        elif field.message_type is not None:
            value.add().CopyFrom(rng.choice(value))
        elif rng.random() < 0.3:
            del value[at]
        else:
            value[at] = _other(value[at], rng)
    elif hasattr(value, "ListFields"):
        _change(value, rng)
    else:
        with contextlib.suppress(ValueError, TypeError):  # an enumeration takes its own numbers alone
            setattr(message, field.name, _other(value, rng))


def _other(value, rng: random.Random):
    """Return another value of the same type."""
    if isinstance(value, str):
        return rng.choice(("", "x", "y", "If", "Loop", "Expand", "Tile", "../x", "a\nb", "Ü" * 300))
    if isinstance(value, bytes):
        return value[: rng.randrange(len(value) + 1)]
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, float("inf"), float("nan"), 1e30))
    return rng.choice((0, 1, -1, 2, 16, 255, 2**31 - 1, value + 1, -value, 2**40, 2**62, -(2**62)))


_DAMAGES = (_flip, _cut, _drop, _insert, _repeat, _number, _value, _value)
_MORE = {"onnx": (_field,) * 8, "tflite": (_word,) * 8}


class TooSlowError(BaseException):
    """Ten seconds are over."""


def _too_slow(number: int, frame: object) -> None:
    raise TooSlowError


@cache
def formats():
    """Return the formats: name -> (suffix, true files, how one is read)."""
    return true_files.formats()


def file_of(name: str, seed: int) -> bytes:
    """Return the damaged file of a seed, which is all that decides it."""
    _, files, _ = formats()[name]
    rng = random.Random(f"{name} {seed}")
    data = rng.choice(files)
    if data.startswith(b"\x1f\x8b") and rng.random() < 0.7:
        return gzip.compress(damaged(gzip.decompress(data), rng), 1, mtime=0)
    return damaged(data, rng, _MORE.get(name, ()))


def finding(name: str, seed: int, folder: str) -> str:
    """Read the file of a seed; return what went wrong, or nothing."""
    from schedopt.core.base.errors import SchedoptError

    suffix, _, read = formats()[name]
    path = Path(folder) / f"{name}{suffix}"
    path.write_bytes(file_of(name, seed))
    start = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        read(str(path))
    except SchedoptError as error:
        said = str(error).replace(folder, "")
        return f"{len(said)} letters: {said[:80]}" if len(said) > MOST_LETTERS else ""
    except TooSlowError:
        return f"more than {SECONDS} s"
    except MemoryError:
        return "more than 2 GiB"
    except Exception as error:  # what the campaign looks for
        import traceback

        last = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in last if "site-packages" not in frame.filename] or last
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return f"{type(error).__name__} at {where}: {str(error)[:100]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "" if time.monotonic() - start < SECONDS else f"more than {SECONDS} s"


def file_chunk(name: str, seeds: range) -> list[tuple[int, str]]:
    """Return what goes wrong with the files of some seeds."""
    signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory() as folder:
        finding(name, -1, folder)  # loads what the reader needs
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (taken + MOST_BYTES, limits[1]))
        try:
            found = [(seed, finding(name, seed, folder)) for seed in seeds]
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
    return [(seed, what) for seed, what in found if what]


def instance_chunk(name: str, seeds: range) -> list[tuple[int, str]]:
    """Return the instances of some seeds on which simulator, verifier and exhaustive search do not agree."""
    from models import three_ways

    return [(seed, what) for seed in seeds if (what := three_ways.disagreement(seed))]


def trace_chunk(name: str, seeds: range) -> list[tuple[int, str]]:
    """Return the traces of some seeds on which the allocator's kernel and its twin do not agree."""
    import numpy as np
    from models import allocator_traces

    found = []
    for seed in seeds:
        try:
            allocator_traces.check_twin(np.random.default_rng([9, seed]))
        except Exception as error:
            found.append((seed, f"{type(error).__name__}: {error}"))
    return found


def run(chunk, names: list[str], each: int, out: Path, jobs: int) -> int:
    """Do all chunks that are not done, write a line for each, and return the number of findings."""
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(line["name"], line["start"], line["size"]) for line in done}
    todo = [(name, range(start, start + CHUNK)) for start in range(0, each, CHUNK) for name in names]
    todo = [(name, seeds) for name, seeds in todo if (name, seeds.start, len(seeds)) not in known]
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool, out.open("a") as file:
        futures = [(name, seeds, pool.submit(chunk, name, seeds)) for name, seeds in todo]
        for name, seeds, future in futures:
            found = future.result()
            line = {"name": name, "start": seeds.start, "size": len(seeds), "found": found}
            file.write(json.dumps(line) + "\n")
            file.flush()
            done.append(line)
    for line in done:
        counts[line["name"]] += line["size"]
    findings = [(line["name"], seed, what) for line in done for seed, what in line["found"]]
    for name in names:
        print(f"{name}: {counts[name]:,} tried, {sum(n == name for n, *_ in findings)} found")
    kinds = Counter((name, re.sub(r"\d+", "N", what)[:60]) for name, _, what in findings)
    for (name, kind), number in kinds.most_common(MOST_FINDINGS):
        seed, what = next((s, w) for n, s, w in findings if n == name and re.sub(r"\d+", "N", w)[:60] == kind)
        print(f"  {number} x {name}, as seed {seed}: {what}")
    return len(findings)


OTHERS = {"instances": instance_chunk, "traces": trace_chunk}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("files", *OTHERS))
    parser.add_argument("--each", type=int, default=1000, help="Files of each format, instances, or traces.")
    parser.add_argument("--formats", default="")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("campaign.jsonl"))
    parser.add_argument("--show", nargs=2, metavar=("FORMAT", "SEED"), help="Write the file of a seed, and stop.")
    given = parser.parse_args()
    if given.show:
        sys.stdout.buffer.write(file_of(given.show[0], int(given.show[1])))
        return
    chunk, names = OTHERS.get(given.what, file_chunk), [given.what]
    if given.what == "files":
        names = [name for name in given.formats.split(",") if name] or list(formats())
    sys.exit(1 if run(chunk, names, given.each, given.out, given.jobs) else 0)


if __name__ == "__main__":
    main()
