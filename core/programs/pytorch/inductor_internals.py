"""Private names of PyTorch Inductor; where one is missing `schedopt.inductor` is refused in one sentence."""

from __future__ import annotations

from typing import Any

import torch

from ...base.errors import UsageError
from .dynamo_internals import get_aot_graph_name
from .torch_internals import needed_by

with needed_by("schedopt.inductor"):
    # Inductor's settings and its own heuristics of memory
    from torch._inductor import config, custom_graph_pass, memory

    # The graph that Inductor compiles
    from torch._inductor.virtualized import V

    # The sets that Inductor's heuristics take
    from torch.utils._ordered_set import OrderedSet

CustomSchedulerPass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", object)
"""The base of a pass whose graphs Inductor keeps in its cache; without it nothing is cached."""
HOOK = "_post_fusion_custom_pass"
"""The setting that holds a pass after fusion."""
_NEEDED = ("reorder_for_peak_memory", "get_freeable_input_buf", "estimate_peak_memory")
_SET = (HOOK, "reorder_for_peak_memory_debug")  # the latter is not in 2.9


def check_hook() -> None:
    """Raise a `UsageError` where Inductor has no pass after fusion, or no heuristics to compare with."""
    if not all(hasattr(config, name) for name in _SET) or not all(hasattr(memory, name) for name in _NEEDED):
        raise UsageError(
            f"PyTorch {torch.__version__} cannot reorder Inductor's kernels after fusion; use a later version"
        )
