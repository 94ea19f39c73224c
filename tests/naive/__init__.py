"""Plain-Python twins of the kernels and of the cost model, and random graphs to try them on: a room per idea.

Nothing here calls the code under test: a `Plain` graph is made from a specification (what `GraphBuilder.add_op`
takes) or from the raw arrays of a `CostGraph`, and everything else follows from the cost model's rules
(`docs/concepts/cost-model.md`) by sets and recursion. `import naive` works because pytest's `pythonpath` names the
folder above; tests say `naive.replay`, whatever the room.
"""

from .costs import (
    Replay,
    alive_on,
    needed_transfers,
    order_peak,
    order_step_memory,
    random_steps,
    replay,
    runnable,
    schedule_of,
)
from .exhaustive import all_orders, all_placements, all_schedules, best_schedule, least_peak
from .graphs import CONTROL, Plain, build, plain_of, plain_of_spec, random_graph, random_order, random_spec
from .lifetimes import anneal_lifetimes, lifetimes_cost, sent_after
from .list_schedules import list_steps, longest_paths
from .one_device import (
    arrivals,
    closed_sets,
    depth_first_orders,
    distances,
    implied_edges,
    joinable,
    least_arrival,
    least_peak_memory_first,
    level_sets,
    reachable,
    settled,
)
from .placements import Spread, placements_under
from .priorities import (
    order_log_probability,
    priority_beam,
    random_priority_order,
    ready_steps,
    sampled_order,
    step_log_probability,
    step_probabilities,
)
from .random_keys import as_floats, crossover, decode, looked_up
from .repeated_runs import least_peak_within, least_time, replay_runs, run_sequences, runs_front
from .sequences import Walk, anneal_keys, anneal_sequence, arrange, sequence_cost, sequence_steps, spread
from .topoformer import hops, normalised_laplacian

__all__ = [
    "CONTROL",
    "Plain",
    "Replay",
    "Spread",
    "Walk",
    "alive_on",
    "all_orders",
    "all_placements",
    "all_schedules",
    "anneal_keys",
    "anneal_lifetimes",
    "anneal_sequence",
    "arrange",
    "as_floats",
    "best_schedule",
    "build",
    "crossover",
    "decode",
    "depth_first_orders",
    "distances",
    "hops",
    "implied_edges",
    "joinable",
    "arrivals",
    "closed_sets",
    "least_arrival",
    "settled",
    "least_peak",
    "list_steps",
    "longest_paths",
    "least_peak_within",
    "least_time",
    "least_peak_memory_first",
    "level_sets",
    "lifetimes_cost",
    "looked_up",
    "needed_transfers",
    "normalised_laplacian",
    "order_log_probability",
    "order_peak",
    "order_step_memory",
    "placements_under",
    "plain_of",
    "plain_of_spec",
    "priority_beam",
    "random_graph",
    "random_order",
    "random_priority_order",
    "random_spec",
    "random_steps",
    "reachable",
    "ready_steps",
    "replay",
    "replay_runs",
    "run_sequences",
    "runnable",
    "runs_front",
    "sampled_order",
    "schedule_of",
    "sent_after",
    "sequence_cost",
    "sequence_steps",
    "spread",
    "step_log_probability",
    "step_probabilities",
]
