"""`schedopt gen layered`: graphs built like neural networks."""

from __future__ import annotations

from ....core.base.units import parse_bytes
from ....datasets.layered import LayeredParameters
from ...made_options import Notation, Written
from .family import NUMBERS, RANGE, family_command

_BYTES = Notation(lambda text, what: [parse_bytes(text, what)], lambda size: f"{size // 2**20}MiB")
_HELP = """Generate layered graphs, built like neural networks (Topoformer, appendix A); defaults as there.

Costs are bytes: an output and a workspace per layer. Runtimes are 0.
"""
layered = family_command(
    LayeredParameters,
    _HELP,
    [
        Written(
            "width",
            ("width_low", "width_high"),
            RANGE,
            called="the width",
            help="range of the width factor W, drawn per graph",
        ),
        Written("cost_means", ("cost_means",), NUMBERS),
        Written("cost_stds", ("cost_stds",), NUMBERS),
        Written("cost_weights", ("cost_weights",), NUMBERS),
        Written("unit", ("unit",), _BYTES, called="the unit"),
    ],
)
