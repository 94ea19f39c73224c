"""A PyTorch program that is loaded once: imported, written in another order, measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...graph.graph import CostGraph
from ..measurement import Measurement, OnRun
from ..options import ImportOptions
from .apply import write_in_order
from .importer import costed_graph
from .measure import measure_orders
from .program import load_program
from .without_data import refuse_without_data


class TorchRunner:
    """See `runners.Runner`."""

    def __init__(self, model: str, options: ImportOptions, note: Callable[[str], None]) -> None:
        self.model, self.options = model, options
        self.program = load_program(model, options.training, options.plain_shapes, note, options.device)

    def graph(self, costs: str, note: Callable[[str], None]) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        return costed_graph(self.program, self.options, costs, note)

    def write(self, graph: CostGraph, order: Sequence[int], output: str, note: Callable[[str], None]) -> None:
        """Write an exported program; see `write_in_order`."""
        refuse_without_data(self.program.name, self.program.arguments)
        write_in_order(self.program, graph, order, output, self.model)
        if self.options.training != "none":
            note(f"{output}: a training step; its inputs are {len(self.program.arguments)} tensors, parameters first")

    def measure(
        self,
        graph: CostGraph,
        orders: Mapping[str, Sequence[int]],
        repeats: int,
        note: Callable[[str], None],
        on_run: OnRun,
    ) -> list[Measurement]:
        """Measure it with PyTorch's allocator; see `measure_orders`."""
        refuse_without_data(self.program.name, self.program.arguments)
        return measure_orders(self.program, graph, orders, repeats, self.options.device, note, on_run)
