"""An ONNX program that is loaded once: imported, written in another order, measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...graph.graph import CostGraph
from ..measurement import Measurement, OnRun
from ..options import ImportOptions
from .apply import write_in_order
from .importer import costed_graph
from .loading import load_program
from .measure import measure_orders


class OnnxRunner:
    """See `runners.Runner`.

    Parameters
    ----------
    model
        The `.onnx` file.
    options
        As it is imported; `shapes` is used.
    note
        Called with each remark worth showing.
    """

    def __init__(self, model: str, options: ImportOptions, note: Callable[[str], None]) -> None:
        self.options = options
        self.program = load_program(model, options.shapes, note)

    def graph(self, costs: str, note: Callable[[str], None]) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        return costed_graph(self.program, self.options, costs, note)

    def write(self, graph: CostGraph, order: Sequence[int], output: str, note: Callable[[str], None]) -> None:
        """Write an ONNX file; see `write_in_order`."""
        write_in_order(self.program, graph, order, output)
        note(f"{output}: ONNX Runtime keeps this order with execution_order = PRIORITY_BASED and optimisations off")

    def measure(
        self,
        graph: CostGraph,
        orders: Mapping[str, Sequence[int]],
        repeats: int,
        note: Callable[[str], None],
        on_run: OnRun,
    ) -> list[Measurement]:
        """Measure it with glibc's allocator; see `measure_orders`."""
        return measure_orders(self.program, graph, orders, repeats, note, on_run)
