"""One run of an ONNX program, node by node: the sizes that only a run tells, and what opaque nodes take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from ...base.errors import ProgramError
from ..fresh_process import answer, ask
from ..options import Size
from ..system_allocator import SystemAllocator
from .costs import for_each_node, workspace_of
from .program import OnnxProgram, read_program
from .session import constant_tensors

SECONDS = 300.0
"""A run takes no longer, for a damaged loop may have no end."""


def observe(program: OnnxProgram) -> dict[str, Any]:
    """Run a program once in another process; return the `types` that were missing, and opaque nodes' `workspaces`."""
    observed: dict[str, Any] = ask("onnx.observe", program.question, seconds=SECONDS)
    return observed


def run_once(path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any]) -> dict[str, Any]:
    """Run the program in this process; see `observe`."""
    program = read_program(path, shapes, observed)
    allocator = SystemAllocator()
    types: dict[str, Any] = {}

    def look(name: str, session: Any, inputs: dict[str, NDArray[Any]]) -> tuple[int, Any]:
        if name not in program.opaque:
            return 0, session.run(None, inputs)
        return workspace_of(allocator, session, inputs)

    def keep(name: str, value: NDArray[Any]) -> None:
        if name not in program.types:
            if not isinstance(value, np.ndarray):
                raise ProgramError(f"'{name}' is no tensor")
            types[name] = [onnx.helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)]

    for name, tensor in constant_tensors(program).items():
        if name not in program.types:
            types[name] = [tensor.data_type, list(tensor.dims)]
    workspaces = for_each_node(program, look, keep)
    return {"types": types, "workspaces": {name: workspaces[name] for name in sorted(program.opaque)}}


if __name__ == "__main__":
    answer(run_once)
