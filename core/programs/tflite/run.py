"""One run of a TFLite file in a process of its own; asks and answers are JSON, see `run_file`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..fresh_process import answer, digest
from ..system_allocator import time_runs
from .costs import arena_for
from .interpreter import MicroInterpreter
from .program import load_program

SEED = 0
INVOCATIONS = 3
"""Runs whose outputs are compared, each with other inputs: what a model keeps from run to run shows in the later."""


def run_file(path: str, times: bool) -> dict[str, Any]:
    """Run a file on random inputs under TensorFlow Lite for Microcontrollers."""
    program = load_program(path)
    interpreter = MicroInterpreter(program.data, arena_for(program))
    rng = np.random.default_rng(SEED)
    given = [not program.main.tensors[tensor].is_constant for tensor in program.main.inputs]
    digests = []
    for _ in range(INVOCATIONS):
        interpreter.set_inputs(given, rng)
        interpreter.invoke()
        for output in interpreter.outputs(len(program.main.outputs)):
            digests.append(digest(output.dtype, output.shape, output.tobytes()))
    arena = interpreter.arena()
    measured = time_runs(interpreter.invoke_quietly) if times else {}
    return {**arena, "peak": arena["head"], "digests": digests, **measured}


if __name__ == "__main__":
    answer(run_file)
