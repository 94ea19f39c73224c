"""A TFLite program that is loaded once: imported, written in another order, measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...graph.graph import CostGraph
from ..measurement import Measurement, OnRun
from ..options import ImportOptions
from ..roofline import Roofline
from ..schedule_order import check_order
from .apply import run_bytes, write_in_order
from .costs import Costs, measured_costs
from .importer import graph_of, note_unknown
from .measure import measure_orders
from .plan import planned
from .planner import head_of
from .program import load_program


class TfliteRunner:
    """See `runners.Runner`."""

    def __init__(self, model: str, options: ImportOptions, note: Callable[[str], None]) -> None:
        self.options = options
        self.program = load_program(model)
        self._costs: dict[bool, Costs] = {}

    def graph(self, costs: str, note: Callable[[str], None]) -> CostGraph:
        """Return the program's graph; see `graph_of`."""
        found = self.found(costs == "measured")
        note_unknown(self.program, found, note)
        return graph_of(self.program, found, Roofline(self.options.flops, self.options.memory_bandwidth))

    def write(self, graph: CostGraph, order: Sequence[int], output: str, note: Callable[[str], None]) -> None:
        """Write a TFLite file; see `write_in_order`."""
        new = write_in_order(self.program, graph, order, self.found(False).scratch, output)
        where = "offsets are in the file" if new.is_offline else "the runtime's own planner finds the places"
        note(f"{output}: the arena's head has {new.head:,} bytes; {where}")

    def measure(
        self,
        graph: CostGraph,
        orders: Mapping[str, Sequence[int]],
        repeats: int,
        note: Callable[[str], None],
        on_run: OnRun,
    ) -> list[Measurement]:
        """Measure it by the arena that TensorFlow Lite for Microcontrollers reports; see `measure_orders`."""
        return measure_orders(self.program, graph, orders, self.found(False).scratch, repeats, note, on_run)

    @property
    def tail(self) -> int:
        """Bytes that the runtime keeps beside tensors, on this machine; 0 where the model does not run here."""
        return self.found(False).tail or 0

    def arena(self, graph: CostGraph, order: Sequence[int] | None = None) -> int:
        """Return the bytes of the whole arena, in the order of the file or in one of the graph's ops.

        Its tail is that of a run, since it depends a little on the order; there is none if the model does not run here.
        """
        found = self.found(False)
        if order is None:
            return head_of(self.program, found.scratch) + self.tail
        check_order(graph, order)
        new = planned(self.program, graph, order, found.scratch)
        return new.head + (run_bytes(new.data, self.program.path)["tail"] if found.head is not None else 0)

    def found(self, times: bool) -> Costs:
        """Return what running the operators shows, with their times or not; they are run once."""
        known = self._costs.get(True) or self._costs.get(times)
        if known is None:
            known = self._costs[times] = measured_costs(self.program, times)
        return known
