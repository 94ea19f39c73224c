"""ONNX programs: import, apply, measure."""

from __future__ import annotations

from ...base.errors import UsageError

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise UsageError(f"an ONNX model needs onnx and onnxruntime ({error}): pip install 'schedopt[onnx]'") from error
