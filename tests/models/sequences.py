"""Random graphs, links and scratch on which the kernels of sequences are tried."""

from itertools import pairwise

import naive
import numpy as np
from schedopt import Problem
from schedopt.core.kernels.cost_model import NO_LIMIT, Steps, machine_arrays, new_state
from schedopt.core.kernels.placements.lazy_keys import new_lazy
from schedopt.core.kernels.placements.sequences import NO_GROUPS, Objective, places_of, run_sequence

KINDS = ("peak", "makespan", "limited", "limited, just in time")


class SequenceCase:
    """A random graph, links (free or paid; `costs` is what they are for the twins) and the kernels' scratch."""

    def __init__(self, seed, devices, most_ops=14):
        self.rng = rng = np.random.default_rng([97, seed, devices])
        # Whole runtimes and a quarter of a microsecond: sums are exact, so twins break ties alike.
        self.graph, self.plain = naive.random_graph(rng, int(rng.integers(1, most_ops)), whole_runtimes=True)
        pointers, tensors = (a.tolist() for a in self.graph.inputs)
        self.plain.inputs = [[self.plain.tensors[t] for t in tensors[a:b]] for a, b in pairwise(pointers)]
        self.devices = devices
        self.costs = {"bandwidth": 1e6, "latency": 0.25} if seed % 2 else {}
        self.problem = Problem(self.graph, "runtime", devices, **self.costs)
        self.arrays, self.machine = machine_arrays(self.problem)
        self.state = new_state(self.arrays, devices, True)
        self.places = self.places_with(NO_GROUPS)
        self.lazy = new_lazy(self.arrays, self.machine, self.places)
        self.limit = NO_LIMIT

    def keys(self):
        keys = self.rng.random(self.graph.num_ops + 1, dtype=np.float32)
        return np.floor(keys * 4).astype(np.float32) / 4 if self.rng.random() < 0.5 else keys

    def aim(self, kind):
        """What is minimised; the machine has the limit that goes with it."""
        self.limit = {"peak": 60, "makespan": NO_LIMIT}.get(kind, 40)
        self.machine = self.machine._replace(limits=np.full(self.devices, self.limit))
        size = np.full(self.devices, 50.0 if kind == "peak" else float(self.limit))
        return {
            "peak": Objective(True, size, 0.0, 0.0, True, False),
            "makespan": Objective(False, size, 0.01, 0.0, False, True),
            "limited": Objective(False, size, 0.01, 10.0, True, True),
            "limited, just in time": Objective(False, size, 0.01, 10.0, True, False),
        }[kind]

    def places_with(self, groups):
        rules = self.problem.rules
        return places_of(rules.group, rules.allowed, groups)

    def random_sequence(self):
        placement = self.rng.integers(0, self.devices, self.graph.num_ops).tolist()
        return naive.random_order(self.rng, self.plain), placement

    def cost(self, aim):
        def price(order, placement):
            energy, peak, runtime = naive.sequence_cost(self.plain, order, placement, self.devices, aim, **self.costs)
            return energy, peak if aim.memory else 0, runtime

        return price

    def run(self, order, placement, aim, bar=np.inf, record=True):
        self.state.placement[:] = placement
        most = self.graph.num_ops + self.graph.num_tensors * self.devices if record else 0
        steps = Steps(np.empty(most, np.int32), np.empty(most, np.int32))
        order = np.array(order, np.int32)
        out = run_sequence(self.arrays, self.state, self.lazy.due, order, aim, self.machine, bar, steps)
        return out, steps.items[: out[0]], steps.targets[: out[0]]
