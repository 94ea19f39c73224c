"""Orders made for one device, placed on several by the decoders that `auto` uses there."""

from __future__ import annotations

import numpy as np

from ...base.arrays import IndexArray
from ...search.search import Search
from .lazy_keys import LazyChromosomes, decoding_work, has_time_to_decode, keys_along
from .list_schedulers import list_schedule
from .peak_annealing import LeastPeak
from .random_keys import Population


def place(search: Search, orders: IndexArray) -> None:
    """Offer schedules on several devices that follow orders made for one, one of which has been offered there.

    Least peak: beams place the ops along each order, which has an equal share of the budget left. Least makespan: an
    op's place in the order is its key in the lazy decoder; if no schedule keeps the memory limit, beams look for one
    that does. Where devices differ or residents have a home, each op is where it ends first.
    """
    problem = search.problem
    if problem.task == "runtime" or not problem.is_symmetric:
        _run_lazily(search, orders)
    if not problem.is_symmetric or (problem.task == "runtime" and search.best_fitness[0] == 0):
        return
    peaks = LeastPeak(search)
    for row, order in enumerate(orders):
        if peaks.must_stop():
            return
        peaks.search_placements(order, (1.0 - peaks.annealing.progress()) / (len(orders) - row))


def _run_lazily(search: Search, orders: IndexArray) -> None:
    rows = orders[: int(min(len(orders), search.evaluations_left))]
    if len(rows) and not search.exhausted():
        decode_keys(search, np.stack([keys_along(order) for order in rows]))


def decode_keys(search: Search, keys: Population) -> None:
    """Offer the schedules of rows of keys of a makespan; a list schedule where there is no time to decode these."""
    graph = search.problem.graph
    if has_time_to_decode(search, decoding_work(search.problem)):
        with LazyChromosomes(search) as chromosomes:
            chromosomes.price(keys)
        return
    instead = "this is a list schedule"
    search.note(f"{graph.name}: there was no time for {search.working}'s decoder; {instead}")
    schedule = list_schedule(search.problem, search.interrupt.is_set)
    if schedule is not None:
        search.spend(1)
        search.offer(schedule)
