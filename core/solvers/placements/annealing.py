"""Simulated annealing on several devices (Kirkpatrick, Gelatt and Vecchi 1983): which parts have which share."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from ...bounds.bounds import min_cut_bound
from ...problem.problem import Problem
from ...problem.residents import model_of
from ...search import parameters as base
from ...search.parameters import parameter
from ...search.plans import objective_of
from ...search.search import Search
from ..orders import order_search
from ..orders.baselines import greedy_order
from . import peak_annealing
from .chromosomes import start_keys
from .list_schedulers import list_schedule
from .makespan_annealing import LONGER, MOVES_PER_OP, MakespanAnnealing
from .peak_annealing import POWER, LeastPeak
from .plan_annealing import PlanAnnealing

LARGEST_IMPATIENT = 10_000  # ops up to which keys may have little patience: ready ops then pile up on one device
SHARE_OF_CUTS, SHARE_OF_STARTS, SHARE_IN_STEPS, SHARE_WITHOUT_LIMIT = 0.1, 0.1, 0.75, 0.2
"""Of the budget: for the bound on the peak of different devices, their starts, the work before the annealing of plans
on them, and, where transfers take time, for a schedule that may exceed the memory limit."""
HOTTER_WITHIN = 4.0  # how much hotter a schedule that keeps a limit is annealed at first: it is far from the best
LARGEST_IN_CYCLES = 64
HOTTER_PEAK = 20.0  # how much hotter the cycles of a small graph's peak are than a larger one's, but for the first


@dataclass(frozen=True)
class Parameters(base.Parameters):
    """Temperatures are relative: at 0.001 a schedule 0.1% worse is accepted with probability 1/e."""

    keys: float = parameter(
        0.2, "share of the budget spent on the lazy decoder's keys, for the runtime task", low=0.0, high=1.0
    )
    fitting: float = parameter(
        0.7, "largest share of the budget spent to keep the memory limit, for the runtime task", low=0.0, high=1.0
    )
    hot: float = parameter(
        5e-4,
        "first temperature, for the runtime task; at 0.001 a schedule 0.1% worse is taken with probability 1/e",
        low=1e-9,
        high=1.0,
    )
    cold: float = parameter(5e-5, "last temperature, for the runtime task, likewise", low=1e-9, high=1.0)
    memory_hot: float = parameter(1e-3, "first temperature, for the memory task, likewise", low=1e-9, high=1.0)
    memory_cold: float = parameter(
        3e-5,
        "last temperature, for the memory task, likewise; graphs of fewer than 1,000 ops end warmer, in proportion",
        low=1e-9,
        high=1.0,
    )


def solve(search: Search, parameters: Parameters) -> None:
    """Anneal until the budget ends; the best schedule known is one of the starts."""
    problem = search.problem
    if problem.is_symmetric:
        _in_steps(search, parameters)
        return
    plans = PlanAnnealing(search, parameters.hot if problem.task == "runtime" else parameters.memory_hot)
    is_small, machine = problem.graph.num_ops <= LARGEST_IN_CYCLES, problem.machine
    if problem.task == "memory" and not machine.is_equal:
        _bound_peak(search)
    if is_small or not machine.has_link.all() or (machine.is_beside and problem.task == "runtime"):
        plans.offer_starts()
    else:
        if search.best is None:
            search.offer_order(problem.graph.input_order)
        with search.part(SHARE_OF_STARTS):
            plans.offer_starts()
        if machine.is_beside:
            with _other(search, _blocking(problem), SHARE_IN_STEPS) as inner:
                _in_steps(inner, parameters)
            search.raise_lower_bound(inner.lower_bound)  # of bytes, whatever transfers do
            if inner.best is not None:
                search.offer(inner.best)
        else:
            with search.part(SHARE_IN_STEPS if problem.task == "runtime" else 1.0):
                _in_steps(search, parameters)
        plans.take_best()
    plans.go_on()


def _bound_peak(search: Search) -> None:
    """Raise the bound by minimum cuts, most of which an order of low peak on one device spares."""
    with search.part(SHARE_OF_CUTS):
        order = greedy_order(model_of(search.problem.graph).buffers, search.exhausted)
        if order is not None:
            known, stop = search.lower_bound, search.exhausted
            bound = min_cut_bound(search.problem, order, known, stop=stop, has_time_for=search.has_time_for)
            search.raise_lower_bound(bound)


def _other(search: Search, problem: Problem, share: float) -> AbstractContextManager[Search]:
    """Return a search of another problem in a share of the budget left."""
    evaluations, until = max(1.0, share * search.evaluations_left), search.share_of_time(share)
    return search.on(problem, evaluations=evaluations, until=until, lower_bound=search.lower_bound)


def _blocking(problem: Problem) -> Problem:
    """Return a problem on the same machine, whose transfers block."""
    return replace(problem, machine=replace(problem.machine, transfers="blocking"))


def _in_steps(search: Search, p: Parameters) -> None:
    """Anneal on devices with blocking transfers, any two of them linked."""
    problem = search.problem
    if search.best is None:
        search.offer_order(problem.graph.input_order)
    if problem.task == "memory":
        if _is_in_cycles(search):
            _minimise_peak_in_cycles(search, p)
        else:
            LeastPeak(search).run(p.memory_hot, p.memory_cold)
    elif objective_of(problem).memory and problem.transfers_take_time:
        _minimise_within_limit(search, p)
    else:
        _minimise_makespan(search, p)
    search.exhausted()  # a clock of its own may have seen first that time is up


def warm_up(tiny: Problem) -> Problem:
    """Compile the kernels of the search on one device, too; more is done under a limit that cannot be kept."""
    machine = tiny.machine
    greedy_order(tiny.graph.buffers)
    if (machine.is_beside and tiny.task == "runtime") or not machine.has_link.all():
        return tiny
    order_search.warm_up(tiny)
    if machine.is_equal:
        list_schedule(tiny)
    peak_annealing.warm_up(_blocking(tiny) if machine.is_beside else tiny)
    return tiny if tiny.memory_limit is None else replace(tiny, memory_limit=1)


def _is_in_cycles(search: Search) -> bool:
    """Whether a small graph is annealed in cycles, more of them in more time: if transfers are free."""
    problem = search.problem
    is_free = problem.task == "memory" or (not objective_of(problem).memory and not problem.transfers_take_time)
    is_small = problem.devices > 1 and problem.graph.num_ops <= LARGEST_IN_CYCLES
    return is_small and is_free and search.is_timed and not search.is_counted


def _minimise_peak_in_cycles(search: Search, p: Parameters) -> None:
    """Search for the least peak, then anneal it anew, for longer each time, until time ends."""
    moves = float(MOVES_PER_OP * search.problem.graph.num_ops)
    with search.part(evaluations=int(moves)):
        LeastPeak(search).run(p.memory_hot, p.memory_cold)
    while not search.exhausted():
        moves *= LONGER
        with search.part(evaluations=int(moves)):
            LeastPeak(search).anneal(HOTTER_PEAK * p.memory_hot * POWER, HOTTER_PEAK * p.memory_cold * POWER)


def _minimise_makespan(search: Search, p: Parameters) -> None:
    problem, is_large = search.problem, search.problem.graph.num_ops > LARGEST_IMPATIENT
    if is_large and problem.devices > 1 and problem.machine.is_equal:
        schedule = list_schedule(problem, search.exhausted)  # there may be no time to decode any keys
        if schedule is not None:
            search.spend(1)
            search.offer(schedule)
    if search.exhausted():
        return
    annealing = MakespanAnnealing(search)
    starts = start_keys(problem)
    if is_large:
        annealing.over_cuts()
        annealing.price_starts(starts[:-1])
    elif annealing.price_starts(starts):
        annealing.over_cuts()
        if _is_in_cycles(search):
            annealing.over_cycles(p.hot, p.cold)
            return
        annealing.over_keys(p.keys, p.hot, p.cold)
    if search.best_fitness[0] > 0:
        LeastPeak(search, p.fitting).run(p.memory_hot, p.memory_cold)
        annealing.start_from()
    annealing.over_sequences(p.hot, p.cold)


def _minimise_within_limit(search: Search, p: Parameters) -> None:
    """Anneal a fast schedule that ignores the memory limit while its excess weighs more and more."""
    if search.exhausted():
        return
    machine = search.problem.machine
    machine = replace(machine, devices=tuple(replace(device, memory=None) for device in machine.devices))
    with _other(search, replace(search.problem, memory_limit=None, machine=machine), SHARE_WITHOUT_LIMIT) as alone:
        assert search.best is not None
        alone.offer(search.best)
        _minimise_makespan(alone, p)
    assert alone.best is not None
    search.offer(alone.best)
    if search.exhausted():
        return
    if search.best_fitness[0] > 0:
        LeastPeak(search, p.fitting).run(p.memory_hot, p.memory_cold)
    annealing = MakespanAnnealing(search)
    annealing.over_excess(alone.best, p.hot, p.cold)
    annealing.start_from()
    annealing.over_sequences(HOTTER_WITHIN * p.hot, p.cold)
