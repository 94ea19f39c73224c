"""Damaged files: each is read, or refused in one sentence, without a crash and without a hang.

usage: python tests/bench/mutations.py [FORMAT...] [--count N, default 100000] [--seed S, default 0]
       [--seconds LIMIT of one file, default 120] [--keep FOLDER for the files that fail] [--no-runs]

Each file is one of the format's good ones with a few bytes or fields changed, drawn by its number, so that `--seed 17
--count 1` makes file 17 again. It is imported in a process of its own kind: one after the other in the same process,
until one kills it or takes too long. Prints how many were read, refused, and failed (a traceback, a message of several
lines, a dead process, a hang), with each failure's number; exit code 1 if there are any. 100,000 ONNX files take three
hours on one core: those that ONNX Runtime has to run to tell their sizes start a process each, as does each TFLite file
that can be read, for its scratch buffers. `--no-runs` leaves that out, as if none of them could be run.

To add a format: a generator of good files, in `FORMATS`.
"""

import argparse
import contextlib
import functools
import multiprocessing
import resource
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

MEMORY = 4 << 30
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


class Format(NamedTuple):
    """How files of a format are made: `good` yields some, `mutate` changes one by a generator of random numbers."""

    suffix: str
    good: Callable[[], Iterator[bytes]]
    mutate: Callable


def onnx_files():
    """Small models: branches, random ops, control flow, a function, quantised weights, arithmetic on shapes."""
    from models import onnx_models

    yield onnx_models.branches(2, 16).SerializeToString()
    yield onnx_models.random_model(1).SerializeToString()
    yield onnx_models.with_control_flow().SerializeToString()
    yield onnx_models.with_function().SerializeToString()
    yield onnx_models.quantized().SerializeToString()
    yield onnx_models.with_shape_arithmetic().SerializeToString()


def mutate_bytes(data, random):
    """Change up to eight places: a byte, a bit, a run deleted, doubled or filled, or the end cut off."""
    data = bytearray(data)
    for _ in range(int(random.integers(1, 9))):
        at = int(random.integers(len(data)))
        length = int(min(random.integers(1, 33), len(data) - at))
        kind = random.integers(7)
        if kind == 0:
            data[at] = int(random.integers(256))
        elif kind == 1:
            data[at] ^= 1 << int(random.integers(8))
        elif kind == 2:
            data[at] = int(random.choice(INTERESTING))
        elif kind == 3 and len(data) > length:
            del data[at : at + length]
        elif kind == 4:
            data[at:at] = data[at : at + length]
        elif kind == 5:
            data[at : at + length] = bytes([int(random.choice(INTERESTING))]) * length
        elif random.integers(4) == 0:
            del data[at + 1 :]
    return bytes(data)


def mutate_onnx(data, random):
    """Change bytes, or fields of the message: numbers, names, what a field holds, what is listed and in which order."""
    from onnx import ModelProto

    if random.integers(2):
        return mutate_bytes(data, random)
    model = ModelProto.FromString(data)
    for _ in range(int(random.integers(1, 4))):
        _mutate_message(model, random)
    return model.SerializeToString()


def _mutate_message(message, random):
    """Change one field, deeper with each message that is in the way."""
    fields = [(field, value) for field, value in message.ListFields()]
    if not fields:
        return
    field, value = fields[int(random.integers(len(fields)))]
    is_list = not isinstance(value, (str, bytes, int, float)) and not hasattr(value, "ListFields")
    if random.integers(12) == 0:
        message.ClearField(field.name)
    elif is_list and len(value):
        index = int(random.integers(len(value)))
        if field.message_type is not None and random.integers(8):
            _mutate_message(value[index], random)
        elif field.message_type is not None:
            with contextlib.suppress(AttributeError):
                value.add().CopyFrom(value[int(random.integers(len(value)))])
        elif random.integers(3) == 0:
            del value[index]
        else:
            value[index] = _other(value[index], value, random)
    elif hasattr(value, "ListFields"):
        _mutate_message(value, random)
    else:
        with contextlib.suppress(ValueError, TypeError):  # an enumeration takes its own numbers alone
            setattr(message, field.name, _other(value, [value], random))


def _other(value, values, random):
    """Return another value of the same type."""
    if isinstance(value, str):
        return str(random.choice(["", "x", "y", "If", "Loop", "Expand", "Tile", "../x", "a\nb", "Ü" * 300, *values]))
    if isinstance(value, bytes):
        return value[: int(random.integers(len(value) + 1))]
    if isinstance(value, float):
        return float(random.choice([0.0, -1.0, float("inf"), float("nan"), 1e30]))
    number = int(random.choice([0, 1, -1, 2, 16, 255, 2**31 - 1, value + 1, -value]))
    return number if random.integers(4) else int(random.choice([2**40, 2**62, -(2**62)]))


def tflite_files():
    """Small models: branches, random ops, subgraphs, states, resource variables, an offline plan."""
    from models import tflite_models

    yield tflite_models.branches().build()
    yield tflite_models.random_model(1, ops=30).build()
    yield tflite_models.control_flow().build()
    yield tflite_models.stateful().build()
    yield tflite_models.with_variables().build()
    yield tflite_models.with_plan().build()


def mutate_tflite(data, random):
    """Change bytes, mostly those of offsets and counts, behind the first eight that tell what it is."""
    from models.tflite_models import mutated

    return mutated(data, random)


FORMATS = {"onnx": Format(".onnx", onnx_files, mutate_onnx), "tflite": Format(".tflite", tflite_files, mutate_tflite)}


@functools.cache
def _files(kind):
    return list(FORMATS[kind].good())


def mutant(kind, number):
    """Return the damaged file of a number."""
    import numpy as np

    random = np.random.default_rng([number, sorted(FORMATS).index(kind)])
    files = _files(kind)
    return FORMATS[kind].mutate(files[int(random.integers(len(files)))], random)


def outcome(path):
    """Import a file; return `read`, or `refused`, or what is wrong."""
    from schedopt.core.base.errors import SchedoptError
    from schedopt.core.programs.importers import read_model
    from schedopt.core.programs.options import ImportOptions

    try:
        read_model(str(path), ImportOptions(), lambda text: None)
    except SchedoptError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {str(error)[:200]!r}"
    except Exception:
        return f"traceback: {traceback.format_exc().strip().splitlines()[-1][:200]}"
    return "read"


def _refuse(program):
    from schedopt.core.base.errors import ProgramError

    raise ProgramError(f"{program.path}: is not run")


def _work(kind, numbers, folder, pipe, has_runs):
    if not has_runs:
        from schedopt.core.programs.onnx import session
        from schedopt.core.programs.tflite import interpreter, runtime

        session.observe = session.as_loaded = _refuse
        runtime.measured_costs = lambda program, times: interpreter.Costs(reason="is not run")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in numbers:
        path = folder / f"mutant{FORMATS[kind].suffix}"
        path.write_bytes(mutant(kind, number))
        pipe.send((number, None))
        pipe.send((number, outcome(path)))


def outcomes(kind, numbers, seconds, has_runs):
    """Yield what becomes of each damaged file, `(number, outcome)`."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        while numbers:
            here, there = context.Pipe()
            worker = context.Process(target=_work, args=(kind, numbers, Path(folder), there, has_runs))
            worker.start()
            there.close()
            current = numbers[0]
            try:
                while here.poll(seconds):
                    current, found = here.recv()
                    if found is not None:
                        yield current, found
                        if current == numbers[-1]:
                            break
                else:
                    yield current, f"hang: more than {seconds:g} s"
            except EOFError:
                worker.join()
                yield current, f"crash: the process ended with {worker.exitcode}"
            worker.kill()
            worker.join()
            numbers = numbers[numbers.index(current) + 1 :]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", choices=[*FORMATS, []], default=[])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--no-runs", action="store_true")
    arguments = parser.parse_args()
    failures = 0
    for kind in arguments.formats or FORMATS:
        counts = Counter()
        numbers = range(arguments.seed, arguments.seed + arguments.count)
        for number, found in outcomes(kind, numbers, arguments.seconds, not arguments.no_runs):
            counts[found if found in ("read", "refused") else "failed"] += 1
            if found not in ("read", "refused"):
                failures += 1
                print(f"{kind} {number}: {found}", flush=True)
                if arguments.keep:
                    arguments.keep.mkdir(parents=True, exist_ok=True)
                    (arguments.keep / f"{number}{FORMATS[kind].suffix}").write_bytes(mutant(kind, number))
        print(f"{kind}: {', '.join(f'{count:,} {what}' for what, count in counts.items())}")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
