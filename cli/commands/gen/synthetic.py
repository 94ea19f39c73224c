"""`schedopt gen synthetic`: graphs of four random graph models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from ....datasets.synthetic import MODELS, SyntheticParameters, parse_costs, parse_models
from ...made_options import Notation, Written, made_option
from .family import NUMBERS, RANGE, family_command

if TYPE_CHECKING:
    from ....datasets.recipe import Keep

_WHOLE_RANGE = Notation(lambda text, what: map(int, RANGE.read(text, what)), RANGE.write)
_MODELS = Notation(
    lambda text, what: [MODELS if text == "all" else parse_models(text)],
    lambda models: "all" if models == MODELS else ",".join(models),
)
_COSTS = Notation(lambda text, what: [parse_costs(text)], str)
_HELP = """Generate graphs of four random graph models in turn (REGAL A.1.4); defaults as there.

A graph that a filter rejects is drawn again from the same model, so the mixture stays even.
"""
_FILTER_HELP = (
    "Keep only graphs whose runtime on 2 devices a genetic algorithm improves by this fraction from 1,000 to 10,000 "
    "evaluations. The paper's set: 0.18. (default: keep all)"
)
_FILTER = made_option("filter_", float | None, None, typer.Option("--filter", min=0, max=1, help=_FILTER_HELP))


def _filters(given: dict[str, Any]) -> Iterator[Keep]:
    from ....datasets.filters import KeepImproving

    if given["filter_"] is not None:
        yield KeepImproving(given["filter_"])


synthetic = family_command(
    SyntheticParameters,
    _HELP,
    [
        Written(
            "nodes",
            ("nodes_low", "nodes_high"),
            _WHOLE_RANGE,
            called="the number of nodes",
            help="ops per graph, a range; source and sink come on top",
        ),
        Written("model", ("models",), _MODELS),
        Written("er_p", ("erdos_renyi_p",)),
        Written("ba_m", ("barabasi_albert_m",)),
        Written("ws_k", ("watts_strogatz_k",)),
        Written("ws_p", ("watts_strogatz_p",)),
        Written("sbm_blocks", ("blocks",)),
        Written("sbm_within", ("block_within",)),
        Written("sbm_across", ("block_across",)),
        Written("output_weights", ("output_weights",), NUMBERS),
        Written("costs", ("costs",), _COSTS),
    ],
    filters=_filters,
    filter_options=[_FILTER],
)
