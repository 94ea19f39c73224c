"""TFLite programs for microcontrollers: import, apply, measure."""

from __future__ import annotations

from ...base.errors import UsageError

try:
    import tflite  # noqa: F401
except ImportError as error:
    raise UsageError(
        f"a TFLite model needs tflite and flatbuffers ({error}): pip install 'schedopt[tflite]'"
    ) from error
