"""Brute-force twins of the kernels and of the cost model, in plain Python, and random graphs to try them on.

Nothing here calls the code under test: a `Plain` graph is made from a specification (what `GraphBuilder.add_op`
takes) or from the raw arrays of a `CostGraph`, and everything else follows from the rules of the design by sets
and recursion. `import naive` works because pytest's `pythonpath` names this folder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

CONTROL = "control"


@dataclass
class Plain:
    """A graph as sets and lists; a tensor is `(op, port)`, a control tensor `(op, "control")`.

    `alias` maps a view to the tensor it is a view of; `reads[op]` holds the tensors that an op reads, control
    included; `readers[tensor]` the ops that read it; `index[tensor]` its place among all tensors.
    """

    runtime: list[float] = field(default_factory=list)
    workspace: list[int] = field(default_factory=list)
    persistent: list[int] = field(default_factory=list)
    outputs: list[list] = field(default_factory=list)
    reads: list[set] = field(default_factory=list)
    size: dict = field(default_factory=dict)
    alias: dict = field(default_factory=dict)
    final: set = field(default_factory=set)

    def __post_init__(self):
        self.ops = range(len(self.runtime))
        self.index = {t: i for i, t in enumerate(t for made in self.outputs for t in made)}
        self.tensors = list(self.index)
        self.readers = {t: {op for op in self.ops if t in self.reads[op]} for t in self.tensors}
        self.before = [{t[0] for t in self.reads[op]} for op in self.ops]
        self.after = [{v for v in self.ops if op in self.before[v]} for op in self.ops]
        self.members = {}
        for t in self.tensors:
            self.members.setdefault(self.root(t), []).append(t)
        self.inputs = [sorted(self.reads[op], key=self.index.get) for op in self.ops]
        self.own = [sum(self.size[t] for t in self.outputs[op] if t not in self.alias) for op in self.ops]

    def root(self, tensor):
        """Follow the alias chain to its end."""
        while tensor in self.alias:
            tensor = self.alias[tensor]
        return tensor

    def users(self, root):
        """Ops that read a tensor or any view of it."""
        return set().union(*(self.readers[t] for t in self.members[root]))

    def is_kept(self, root):
        """Whether the tensor or a view of it is final."""
        return any(t in self.final for t in self.members[root])

    def alive(self, executed):
        """Roots whose buffer is alive on one device after a set of ops."""
        return {
            root
            for root in self.members
            if root[0] in executed and (self.is_kept(root) or not self.users(root) <= set(executed))
        }

    def resident(self, executed):
        """Bytes alive on one device after a set of ops, persistent bytes left out."""
        return sum(self.size[root] for root in self.alive(executed))

    def ready(self, executed):
        """Ops that can run next on one device."""
        return [op for op in self.ops if op not in executed and self.before[op] <= set(executed)]


def plain_of(graph):
    """Read a `CostGraph`'s raw arrays, and none of what it derives from them."""
    ptr = graph.output_ptr.tolist()
    names, outputs = [], []
    for op in range(len(graph.op_names)):
        made = [(op, CONTROL if graph.is_control[t] else t - ptr[op]) for t in range(ptr[op], ptr[op + 1])]
        names.extend(made)
        outputs.append(made)
    reads = graph.read_ptr.tolist()
    return Plain(
        graph.runtime.tolist(),
        graph.workspace.tolist(),
        graph.persistent.tolist(),
        outputs,
        [{names[t] for t in graph.read_tensor[a:b].tolist()} for a, b in pairwise(reads)],
        dict(zip(names, graph.tensor_size.tolist(), strict=True)),
        {names[t]: names[a] for t, a in enumerate(graph.alias_of.tolist()) if a >= 0},
        {names[t] for t, final in enumerate(graph.is_final.tolist()) if final},
    )


def plain_of_spec(spec):
    """Turn a list of `add_op` arguments into a `Plain` graph."""
    op_of_id = {op["op_id"]: at for at, op in enumerate(spec)}
    waited = {op_of_id[i] for op in spec for i in op["control"]}
    outputs, reads, size, alias, final = [], [], {}, {}, set()
    for at, op in enumerate(spec):
        arguments = [(op_of_id[i], port) for i, port in op["inputs"]]
        made = [(at, port) for port in range(len(op["outputs"]))]
        for port, tensor in enumerate(made):
            size[tensor] = op["outputs"][port]
            if op["aliases"][port] >= 0:
                alias[tensor] = arguments[op["aliases"][port]]
            if op["is_final"][port]:
                final.add(tensor)
        if at in waited:
            made.append((at, CONTROL))
            size[at, CONTROL] = 0
        outputs.append(made)
        reads.append(set(arguments) | {(op_of_id[i], CONTROL) for i in op["control"]})
    costs = ([op[key] for op in spec] for key in ("runtime", "workspace", "persistent"))
    return Plain(*costs, outputs, reads, size, alias, final)


# Random graphs ------------------------------------------------------------------------------------------------


def random_spec(rng, ops, *, per_port_final=True, whole_runtimes=False, aliases=True, edges=1.4):
    """Draw a graph with every feature, as a list of `add_op` arguments in the order of the file.

    Several outputs per op or none, inputs repeated or missing (so several components), views and views of
    views, final outputs, control edges beside data edges and repeated, workspace, persistent and zero bytes,
    unread outputs, ids in any order, and ops that stand in the file before what they wait for.
    """
    ids = rng.permutation(3 * ops)[:ops].tolist()
    spec = []
    for at in range(ops):
        ports = [(ids[p], port) for p in range(at) for port in range(len(spec[p]["outputs"]))]
        count = int(min(rng.poisson(edges), 4)) if ports else 0
        recent = ports[-6:] if rng.random() < 0.7 else ports
        inputs = [recent[i] for i in rng.integers(0, max(1, len(recent)), count)]
        if inputs and rng.random() < 0.2:
            inputs.append(inputs[0])
        control = [ids[i] for i in rng.integers(0, at, rng.integers(0, 3))] if at and rng.random() < 0.25 else []
        sizes = [int(rng.choice([0, 1, 2, 3, 5, 8, 13, 40])) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
        views = [int(rng.integers(0, len(inputs))) if aliases and inputs and rng.random() < 0.3 else -1 for _ in sizes]
        final = [bool(rng.random() < 0.15)] * len(sizes)
        if per_port_final and rng.random() < 0.2:
            final = [bool(rng.random() < 0.5) for _ in sizes]
        spec.append(
            {
                "name": f"op{at}",
                "op_id": ids[at],
                "inputs": inputs,
                "control": control,
                "outputs": sizes,
                "aliases": views,
                "is_final": final,
                "runtime": float(rng.integers(0, 9)) + (0.0 if whole_runtimes else float(rng.random())),
                "workspace": int(rng.choice([0, 0, 0, 4, 20])),
                "persistent": int(rng.choice([0, 0, 0, 7])),
            }
        )
    if rng.random() < 0.6:
        spec = [spec[i] for i in rng.permutation(ops)]
    return spec


def build(spec, name="random"):
    """Build a specification with the code under test."""
    from schedopt.core.graph import GraphBuilder

    builder = GraphBuilder(name)
    for op in spec:
        builder.add_op(**op)
    return builder.build()


def random_graph(rng, ops, **options):
    """Draw a graph; returns it and its plain twin, which is made from the same specification."""
    spec = random_spec(rng, ops, **options)
    return build(spec), plain_of_spec(spec)


def random_order(rng, plain):
    """Draw an order of the ops of one device."""
    order = []
    while len(order) < len(plain.ops):
        order.append(int(rng.choice(plain.ready(order))))
    return order


# Schedules ----------------------------------------------------------------------------------------------------


def needed_transfers(plain, placement):
    """Every `(tensor, target)` that a placement asks to be sent."""
    return {
        (t, placement[reader])
        for t in plain.tensors
        for reader in plain.readers[t]
        if placement[reader] != placement[t[0]]
    }


def runnable(plain, placement, done):
    """Steps that can come next: an op, or a `(tensor, target)` that is still to be sent."""
    steps = []
    for op in plain.ops:
        here = placement[op]
        arrived = all(t[0] in done if placement[t[0]] == here else (t, here) in done for t in plain.reads[op])
        if op not in done and arrived:
            steps.append(op)
    sends = needed_transfers(plain, placement) - done
    return steps + sorted((s for s in sends if s[0][0] in done), key=lambda s: (plain.index[s[0]], s[1]))


def random_steps(rng, plain, devices):
    """Draw a placement and a total order of its ops and transfers; returns both."""
    placement = rng.integers(0, devices, len(plain.ops)).tolist()
    done = []
    while choices := runnable(plain, placement, set(done)):
        done.append(choices[int(rng.integers(0, len(choices)))])
    return placement, done


def schedule_of(plain, placement, steps):
    """Return the three columns of a `Schedule`: items, sources, targets."""
    items, sources, targets = [], [], []
    for step in steps:
        if isinstance(step, tuple):
            tensor, target = step
            items.append(~plain.index[tensor])
            sources.append(placement[tensor[0]])
            targets.append(target)
        else:
            items.append(step)
            sources.append(placement[step])
            targets.append(placement[step])
    return items, sources, targets


@dataclass
class Replay:
    """What a schedule costs: per step the memory on its device and the clock after it; per device the peak."""

    step_memory: list[int]
    step_end: list[float]
    peaks: list[int]
    clocks: list[float]


def alive_on(plain, placement, done):
    """Return a function of a device: the bytes of the buffers alive there once the steps of `done` have run."""
    sends = needed_transfers(plain, placement)

    def buffer(tensor, device):
        """The tensor whose arrival on the device started the buffer that this one lives in."""
        if placement[tensor[0]] == device and tensor in plain.alias:
            return buffer(plain.alias[tensor], device)
        return tensor

    def is_needed(tensor, device):
        if any(placement[r] == device and r not in done for r in plain.readers[tensor]):
            return True
        home = placement[tensor[0]] == device
        return home and (tensor in plain.final or any(s[0] == tensor and s not in done for s in sends))

    def alive(device):
        here = [t for t in plain.tensors if (t[0] in done if placement[t[0]] == device else (t, device) in done)]
        return sum(plain.size[b] for b in {buffer(t, device) for t in here if is_needed(t, device)})

    return alive


def replay(plain, placement, steps, devices, *, bandwidth=math.inf, latency=0.0):
    """Price a schedule by working out from scratch, at every step, which buffers are alive where."""
    fixed = [sum(plain.persistent[op] for op in plain.ops if placement[op] == d) for d in range(devices)]
    clock, peak = [0.0] * devices, list(fixed)
    memory, ends = [], []
    done = set()
    alive = alive_on(plain, placement, done)

    for step in steps:
        if isinstance(step, tuple):
            tensor, device = step
            source = placement[tensor[0]]
            took = alive(device) + fixed[device] + plain.size[tensor]
            seconds = plain.size[tensor] / bandwidth
            clock[source] = clock[device] = max(clock[source], clock[device]) + latency + seconds * 1e6
        else:
            device = placement[step]
            took = alive(device) + fixed[device] + plain.own[step] + plain.workspace[step]
            clock[device] += plain.runtime[step]
        done.add(step)
        peak[device] = max(peak[device], took)
        memory.append(took)
        ends.append(clock[device])
    return Replay(memory, ends, peak, clock)


def order_peak(plain, order):
    """Peak of one device: at each op, the buffers alive before it, its new outputs and its workspace."""
    peak = 0
    for step, op in enumerate(order):
        peak = max(peak, plain.resident(order[:step]) + plain.own[op] + plain.workspace[op])
    return peak + sum(plain.persistent)


def order_step_memory(plain, order):
    """Bytes at each step of one device."""
    return [
        sum(plain.persistent) + plain.resident(order[:step]) + plain.own[op] + plain.workspace[op]
        for step, op in enumerate(order)
    ]


# Exhaustive search --------------------------------------------------------------------------------------------


def least_peak(plain):
    """Least peak over all topological orders of one device, by trying them (cut at the best so far)."""
    count = len(plain.ops)
    resident, best = {}, [math.inf]

    def extend(executed, done, peak):
        if done == count:
            best[0] = peak
            return
        if executed not in resident:
            resident[executed] = plain.resident(executed)
        for op in plain.ready(executed):
            reached = max(peak, resident[executed] + plain.own[op] + plain.workspace[op])
            if reached < best[0]:
                extend(executed | {op}, done + 1, reached)

    extend(frozenset(), 0, 0)
    return best[0] + sum(plain.persistent)


def all_orders(plain, executed=()):
    """Yield every topological order."""
    if len(executed) == len(plain.ops):
        yield list(executed)
    for op in plain.ready(executed):
        yield from all_orders(plain, (*executed, op))


def all_schedules(plain, placement, done=()):
    """Yield every total order of a placement's ops and transfers."""
    choices = runnable(plain, placement, set(done))
    if not choices:
        yield list(done)
    for step in choices:
        yield from all_schedules(plain, placement, (*done, step))


def all_placements(ops, devices):
    """Yield every assignment of ops to devices."""
    for number in range(devices**ops):
        yield [number // devices**op % devices for op in range(ops)]


def best_schedule(plain, devices, task, limit=math.inf, **costs):
    """Return `(excess, value)` of the best schedule, by trying all of them, equivalent ones once.

    What a step takes depends on the placement and on the set of steps before it, not on their order, so per
    set only the least peak matters, or the clocks (and peaks above the limit) that no other way dominates.
    """
    best = (math.inf, math.inf)
    for placement in all_placements(len(plain.ops), devices):
        if placement[0] == 0:  # devices are alike
            best = min(best, _best_of_placement(plain, placement, devices, task, limit, costs))
    return best


def _best_of_placement(plain, placement, devices, task, limit, costs):
    level = {frozenset(): [((0.0,) * devices, 0, [])]}
    while True:
        following = {}
        for done, labels in level.items():
            for step in runnable(plain, placement, set(done)):
                for _, _, path in labels:
                    cost = replay(plain, placement, [*path, step], devices, **costs)
                    clocks, peak = tuple(cost.clocks), max(cost.peaks)
                    # Only what the fitness asks for tells labels apart.
                    key = (0.0,) * devices if task == "memory" else clocks
                    label = (key, peak if task == "memory" else max(0, peak - limit), [*path, step])
                    known = following.setdefault(done | {step}, [])
                    if not any(_dominates(other, label) for other in known):
                        known[:] = [other for other in known if not _dominates(label, other)] + [label]
        if not following:
            break
        level = following
    (labels,) = level.values()
    if task == "memory":
        return min((max(0, peak - limit), peak) for _, peak, _ in labels)
    return min((excess, max(clocks)) for clocks, excess, _ in labels)


def _dominates(one, other):
    return one[1] <= other[1] and all(a <= b for a, b in zip(one[0], other[0], strict=True))


# Twins of the kernels -----------------------------------------------------------------------------------------


def joinable(plain, executed, is_backward):
    """Ops that can be the next of the first ops of an order, or backward of its last ones."""
    needed = plain.after if is_backward else plain.before
    return [op for op in plain.ops if op not in executed and needed[op] <= set(executed)]


def level_sets(plain, level, cutoff=math.inf, is_backward=False):
    """Exact dynamic programming, one level on: set of ops -> least peak, from the sets one op smaller."""
    following = {}
    for executed, peak in level.items():
        for op in joinable(plain, executed, is_backward):
            before = frozenset(plain.ops) - executed - {op} if is_backward else executed
            reached = max(peak, plain.resident(before) + plain.own[op] + plain.workspace[op])
            if reached < cutoff:
                key = executed | {op}
                following[key] = min(following.get(key, math.inf), reached)
    return following


def least_arrival(plain, op):
    """Least bytes alive after any closed set of ops that holds an op's ancestors and none of its descendants."""
    ancestors, descendants = reachable(plain.before, op), reachable(plain.after, op)
    free = [v for v in plain.ops if v not in ancestors | descendants | {op}]
    best = math.inf
    for number in range(2 ** len(free)):
        chosen = ancestors | {v for bit, v in enumerate(free) if number >> bit & 1}
        if all(plain.before[v] <= chosen for v in chosen):
            best = min(best, plain.resident(chosen))
    return best


def reachable(neighbours, start):
    """What a path of at least one edge leads to."""
    found = set(neighbours[start])
    while True:
        more = found.union(*(neighbours[v] for v in found))
        if more == found:
            return found
        found = more


def implied_edges(plain):
    """Edges `(first, second)` between ops that a path of two edges or more implies."""
    return {
        (first, second)
        for second in plain.ops
        for first in plain.before[second]
        if any(first in reachable(plain.before, other) for other in plain.before[second])
    }


def hops(neighbours, op):
    """Lengths of all paths from an op to one without neighbours."""
    return {0} if not neighbours[op] else {1 + length for other in neighbours[op] for length in hops(neighbours, other)}


def normalised_laplacian(plain):
    """I - D^-1/2 A D^-1/2 of the edges taken both ways, entry by entry; an op without edges has a row of zeros."""
    beside = [plain.before[op] | plain.after[op] for op in plain.ops]
    matrix = np.diag([float(bool(near)) for near in beside])
    for one in plain.ops:
        for two in beside[one]:
            matrix[one, two] = -1 / math.sqrt(len(beside[one]) * len(beside[two]))
    return matrix


def least_peak_memory_first(plain):
    """Of the ready ops the one that keeps the peak lowest, then leaves least resident, then of least index."""
    order, peak = [], 0
    while len(order) < len(plain.ops):
        resident = plain.resident(order)

        def rank(op, before=resident, so_far=peak):
            reached = max(so_far, before + plain.own[op] + plain.workspace[op])
            return reached, plain.resident([*order, op]), op

        op = min(plain.ready(order), key=rank)
        peak = rank(op)[0]
        order.append(op)
    return order, peak


def depth_first_orders(plain, zobrist, salt):
    """Depth-first search over executed sets (Topoformer C.3): each better order, and how many children it tried.

    Children are the ready ops from a pseudo-random one on, a stride apart. The ready list loses an op by
    putting the last one in its place. A set is closed once searched with a peak below the best.
    """
    word = 2**64 - 1
    best, orders, closed, tried = [math.inf], [], set(), [0]

    def walk(executed, count):
        mixed = (executed_hash(executed) ^ salt) * 0x9E3779B97F4A7C15 & word
        mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & word
        mixed ^= mixed >> 32
        stride = 1 + (mixed >> 32) % count
        while math.gcd(stride, count) != 1:
            stride += 1
        return [(mixed + stride * at) % count for at in range(count)]

    def executed_hash(executed):
        number = 0
        for op in executed:
            number ^= zobrist[op]
        return number

    def extend(order, ready, peak):
        executed = frozenset(order)
        if len(order) == len(plain.ops):
            best[0] = peak
            orders.append(order)
            return
        for at in walk(executed, len(ready)):
            if peak >= best[0]:
                return
            tried[0] += 1
            op = ready[at]
            reached = max(peak, plain.resident(executed) + plain.own[op] + plain.workspace[op])
            if reached >= best[0] or executed | {op} in closed:
                continue
            following = ready[:]
            following[at] = following[-1]
            now = executed | {op}
            became = [v for v in sorted(plain.after[op]) if plain.before[v] <= now]
            extend([*order, op], following[:-1] + became, reached)
        if peak < best[0]:
            closed.add(executed)

    extend([], plain.ready([]), 0)
    return orders, tried[0]


def random_priority_order(plain, priority):
    """Always the ready op of least priority."""
    order = []
    while len(order) < len(plain.ops):
        order.append(min(plain.ready(order), key=lambda op: priority[op]))
    return order


def step_probabilities(plain, priority, executed):
    """Ready op -> probability to be next, a softmax of the priorities over the ready ops (Topoformer eq. 8)."""
    ready = plain.ready(executed)
    largest = max(priority[op] for op in ready)
    weights = [math.exp(priority[op] - largest) for op in ready]
    return {op: weight / math.fsum(weights) for op, weight in zip(ready, weights, strict=True)}


def step_log_probability(plain, priority, executed, op):
    """Log-probability of `op` to be next, without underflow."""
    others = [priority[other] - priority[op] for other in plain.ready(executed)]
    largest = max(others)
    return -largest - math.log(math.fsum(math.exp(other - largest) for other in others))


def order_log_probability(plain, priority, order):
    """Log-probability of an order, step by step."""
    return math.fsum(step_log_probability(plain, priority, order[:at], op) for at, op in enumerate(order))


def sampled_order(plain, priority, draws):
    """At each step the first ready op, by index, at which the cumulative probability exceeds the draw."""
    order = []
    for draw in draws:
        ready, probabilities = zip(*sorted(step_probabilities(plain, priority, order).items()), strict=True)
        reached = accumulate(probabilities)
        order.append(next((op for op, so_far in zip(ready, reached, strict=True) if draw < so_far), ready[-1]))
    return order


def ready_steps(plain, order):
    """Per op, the length of the shortest prefix of the order after which it can run."""
    return [next(t for t in range(len(order)) if plain.before[op] <= set(order[:t])) for op in plain.ops]


def priority_beam(plain, priority, width, collapse):
    """Levels of a beam search by probability (Topoformer 4.2): lists of (order, log-probability, peak)."""
    levels = [[((), 0.0, 0)]]
    for _ in plain.ops:
        successors = []
        for order, score, peak in levels[-1]:
            resident = plain.resident(order)
            for op in plain.ready(order):
                reached = max(peak, resident + plain.own[op] + plain.workspace[op])
                added = step_log_probability(plain, priority, order, op)
                successors.append(((*order, op), score + added, reached))
        if collapse:
            kept = {}
            for order, score, peak in successors:
                key = frozenset(order)
                if key not in kept or (peak, -score) < (kept[key][2], -kept[key][1]):
                    kept[key] = order, score, peak
            successors = list(kept.values())
        levels.append(sorted(successors, key=lambda entry: -entry[1])[:width])
    return levels


def decode(plain, genes, devices, fixed_op):
    """Placement and steps of a chromosome (REGAL A.5): always the ready op or transfer of highest priority.

    Of equal priorities ops come before transfers, then the smaller index, then the smaller device.
    """
    ops = len(plain.ops)
    affinity = [list(genes[op * devices : (op + 1) * devices]) for op in plain.ops]
    placement = [row.index(max(row)) for row in affinity]
    placement[fixed_op] = 0

    def urgency(step):
        if isinstance(step, tuple):
            cell = plain.index[step[0]] * devices + step[1]
            return -genes[ops * (devices + 1) + cell], ops + cell
        return -genes[ops * devices + step], step

    done = []
    while choices := runnable(plain, placement, set(done)):
        done.append(min(choices, key=urgency))
    return placement, done


def crossover(draws, parents, elites, others, bias):
    """Each gene from the elite parent where its draw is below the bias, else from the other parent."""
    return [
        [
            parents[elites[child]][gene] if draw < bias[gene] else parents[others[child]][gene]
            for gene, draw in enumerate(row)
        ]
        for child, row in enumerate(draws)
    ]


def looked_up(draws, tables, rows):
    """Each draw as the quantile of its gene's table: linear between the entries, which are at equal steps."""
    found = [list(row) for row in draws]
    for row in found:
        for gene, draw in enumerate(row):
            if rows[gene] >= 0:
                table = tables[rows[gene]]
                row[gene] = float(np.interp(draw, np.linspace(0, 1, len(table)), table))
    return found


def as_floats(values):
    """Return plain floats of an array of any float type."""
    return np.asarray(values, np.float64).tolist()


# Twins of the lazy decoder ------------------------------------------------------------------------------------


def sequence_steps(plain, order, placement, together):
    """Steps of a sequence: before each op, what it lacks, in the order of its inputs.

    Together: each time an input is lacking, also all else due between the two devices, the newest first (by
    the op that made it, of one op its later tensor, of one tensor the reader met last), first towards the op.
    """
    steps, sent = [], set()
    for at, op in enumerate(order):
        here = placement[op]
        for t in plain.inputs[op]:
            source = placement[t[0]]
            if source == here or (t, here) in sent:
                continue
            batch = [(t, here)]
            if together:
                batch = []
                for maker_on, target in ((source, here), (here, source)):
                    for maker in reversed(order[:at]):
                        for made in reversed(plain.outputs[maker]):
                            wanted = any(placement[r] == target for r in plain.readers[made])
                            if placement[maker] == maker_on and wanted and (made, target) not in sent:
                                batch.append((made, target))
            sent.update(batch)
            steps.extend(batch)
        steps.append(op)
    return steps


def arrange(plain, keys, devices, *, bandwidth=math.inf, latency=0.0):
    """Order and placement of the lazy decoder for the makespan."""
    *urgency, patience = keys
    clock, parked = [0.0] * devices, set()
    order, placement, sent = [], {}, set()
    met = {}  # pair of devices -> how many ops had been taken

    def lacks(op, device):
        """Inputs that would have to be sent."""
        return [t for t in plain.inputs[op] if placement[t[0]] != device and (t, device) not in sent]

    def is_new(tensor, device):
        """Whether it was made after the devices last met."""
        return order.index(tensor[0]) >= met.get(frozenset((placement[tensor[0]], device)), 0)

    def is_local(op, device):
        return not any(is_new(t, device) for t in lacks(op, device))

    def cost(tensor):
        return latency + plain.size[tensor] / bandwidth * 1e6

    local = {}  # ready op -> devices; what was local stays so

    def look():
        for op in plain.ready(order):
            local.setdefault(op, set()).update(d for d in range(devices) if is_local(op, d))

    look()
    while len(order) < len(plain.ops):
        ready = sorted(plain.ready(order), key=lambda op: (-urgency[op], op))
        free = [d for d in range(devices) if d not in parked]
        device = min(free or range(devices), key=lambda d: (clock[d], d))
        here = [op for op in ready if device in local[op]]
        if here:
            chosen = here[0]
        else:
            chosen, least = None, math.inf
            for op in ready:
                missing = lacks(op, device)
                paid = sum(cost(t) for t in missing)
                waits = [clock[placement[t[0]]] for t in missing if is_new(t, device)]
                start = max([clock[device], *waits]) + paid
                elsewhere = math.inf
                if free and paid > 0:
                    for d in local[op]:
                        others = sum(plain.runtime[v] for v in ready if d in local[v]) - plain.runtime[op]
                        elsewhere = min(elsewhere, clock[d] + patience * others)
                if start < least and start <= elsewhere:
                    chosen, least = op, start
            if chosen is None:
                parked.add(device)
                continue
            news = [t for t in lacks(chosen, device) if is_new(t, device)]
            for t in news:
                pair = frozenset((placement[t[0]], device))
                if is_new(t, device):
                    for d in pair:
                        clock[d] = max(clock[e] for e in pair)
                    met[pair] = len(order)
            look()
        for t in lacks(chosen, device):
            sent.add((t, device))
            clock[placement[t[0]]] += cost(t)
            clock[device] += cost(t)
        clock[device] += plain.runtime[chosen]
        placement[chosen] = device
        order.append(chosen)
        parked.clear()
        look()
    return order, [placement[op] for op in plain.ops]


def spread(plain, keys, devices):
    """Order and placement of the memory-aware greedy decoder."""
    *urgency, noise = keys
    largest = max(plain.size.values(), default=0)
    order, placement, peak = [], {}, 0
    copies = {t: set() for t in plain.tensors}
    arrived = []  # ready ops, in the order they became so

    def left(tensor):
        return plain.readers[tensor] - set(order)

    def own_size(tensor):
        return 0 if tensor in plain.alias else plain.size[tensor]

    def resident(device):
        kept = [t for t in plain.tensors if t[0] in placement and (left(t) or t in plain.final)]
        fixed = sum(plain.persistent[op] for op in order if placement[op] == device)
        return fixed + sum(own_size(t) for t in kept if device in copies[t])

    def look(ops):
        arrived.extend(op for op in ops if op not in arrived and op in plain.ready(order))

    look(plain.ops)
    while arrived:
        best = None
        for at, op in enumerate(arrived):
            made = plain.own[op] + plain.persistent[op]
            freed = sum(own_size(t) for t in plain.reads[op] if left(t) == {op} and t not in plain.final)
            for device in range(devices):
                brought = sum(plain.size[t] for t in plain.reads[op] if device not in copies[t])
                reached = max(peak, resident(device) + brought + made + plain.workspace[op])
                rank = (reached, brought + made - freed - noise * urgency[op] * largest, at, device)
                best = min(best or rank, rank)
        peak, _, at, device = best
        op = arrived.pop(at)
        for t in plain.reads[op]:
            copies[t].add(device)
        for t in plain.outputs[op]:
            copies[t] = {device}
        order.append(op)
        placement[op] = device
        readers = [v for t in plain.outputs[op] for v in sorted(plain.readers[t])]
        look(v for at, v in enumerate(readers) if v not in readers[at + 1 :])
    return order, [placement[op] for op in plain.ops]


def sequence_cost(plain, order, placement, devices, aim, *, bandwidth=math.inf, latency=0.0):
    """What annealing minimises, the peak and the makespan of a sequence."""
    steps = sequence_steps(plain, order, placement, aim.together)
    run = replay(plain, placement, steps, devices, bandwidth=bandwidth, latency=latency)
    if aim.is_peak:
        penalty = sum((m / aim.size) ** 16 for m in run.step_memory)
    else:
        over = [m / aim.size - 1 for m in run.step_memory if m > aim.size and aim.memory]
        penalty = sum((part + 0.001) * aim.weight for part in over)
    return penalty + aim.scale * max(run.clocks), max(run.peaks), max(run.clocks)


class Walk:
    """The present solution of an annealing, and the best that it met."""

    def __init__(self, aim, cost, energy):
        self.aim, self.cost, self.energy = aim, cost, energy
        self.best, self.found = (math.inf, math.inf), None

    def accepts(self, order, placement, temperature, draw):
        """Price a solution and take it if it is under the bar."""
        energy, peak, runtime = self.cost(order, placement)
        if energy > self.energy * (1 - draw) ** -temperature:
            return False
        self.energy = energy
        fitness = (max(0, peak - self.aim.limit), peak if self.aim.is_peak else runtime)
        if fitness < self.best:
            self.best, self.found = fitness, (list(order), list(placement))
        return True


def cooling(hot, cold, moves):
    """Yield the temperature of each move."""
    for move in range(moves):
        yield hot * (cold / hot) ** (move / moves)


def anneal_sequence(plain, walk, order, placement, devices, hot, cold, draws):
    """Moves of single ops: another device, another place, or both."""
    for temperature, row in zip(cooling(hot, cold, len(draws)), draws, strict=True):
        op = int(row[0] * len(order))
        kind = row[1] if devices > 1 else 1.0
        moved, placed = list(order), list(placement)
        if kind < 0.5:
            placed[op] = (placed[op] + 1 + int(row[2] * (devices - 1))) % devices
        if kind >= 0.1:
            first = max((order.index(v) + 1 for v in plain.before[op]), default=0)
            last = min((order.index(v) - 1 for v in plain.after[op]), default=len(order) - 1)
            moved.remove(op)
            moved.insert(first + int(row[3] * (last - first + 1)), op)
        if walk.accepts(moved, placed, temperature, row[4]):
            order, placement = moved, placed
    return order, placement


def anneal_keys(walk, keys, decode, has_costs, hot, cold, draws):
    """Moves of one key or two, or of the last."""
    ops = len(keys) - 1
    for temperature, row in zip(cooling(hot, cold, len(draws)), draws, strict=True):
        one = int(row[0] * ops)
        two = int(row[1] * ops) if row[4] < 0.5 else one
        reach = 0.2 if row[4] % 0.5 < 0.25 else 1.0
        changed = keys.copy()
        if has_costs and row[4] < 0.05:
            changed[ops] = row[2]
        else:
            changed[one] = keys[one] + reach * (row[2] - 0.5)
            if two != one:
                changed[two] = keys[two] + reach * (row[3] - 0.5)
        if walk.accepts(*decode(changed), temperature, row[5]):
            keys = changed
    return keys


# Twins of the search for the least peak -----------------------------------------------------------------------


def sent_after(plain, order, placement, delay):
    """Map every transfer to the place of the order after which it is sent."""
    place = {op: at for at, op in enumerate(order)}
    after = {}
    for t, target in needed_transfers(plain, placement):
        home = placement[t[0]]
        earliest = max(place[op] for op in {t[0]} | {r for r in plain.readers[t] if placement[r] == home})
        latest = min(place[r] for r in plain.readers[t] if placement[r] == target) - 1
        wait = latest - earliest
        after[t, target] = latest if wait <= 0 else earliest + int(delay[plain.index[t], target] * wait + 0.5)
    return after


def lifetimes_cost(plain, order, placement, delay, devices, size):
    """Penalties and peak of a sequence: at each place, what is alive on the op's device and where bytes came."""
    after = sent_after(plain, order, placement, delay)
    fixed = [sum(plain.persistent[op] for op in plain.ops if placement[op] == d) for d in range(devices)]
    before, penalty, peak = [0] * devices, 0.0, 0
    for at, op in enumerate(order):
        done = set(order[:at]) | {send for send, place in after.items() if place < at}
        alive = alive_on(plain, placement, done)
        for device in range(devices):
            runs = placement[op] == device
            now = alive(device) + (plain.own[op] if runs else 0)
            if runs or now > before[device]:
                took = now + fixed[device] + (plain.workspace[op] if runs else 0)
                penalty += (took / size) ** 16
                peak = max(peak, took)
            before[device] = now
    return penalty, peak


def anneal_lifetimes(plain, order, placement, delay, devices, size, temperature, draws):
    """Moves of a delay, or of an op to another device, another place, or both; also the least peak met."""
    energy, least = lifetimes_cost(plain, order, placement, delay, devices, size)
    for row in draws:
        op = int(row[0] * len(order))
        moved, placed, delayed = list(order), list(placement), delay.copy()
        other = (placement[op] + 1 + int(row[2] * (devices - 1))) % devices if devices > 1 else 0
        made = plain.outputs[op]
        if devices > 1 and row[5] < 0.1 and made:
            tensor = made[int(row[5] * 10 * len(made))]
            delayed[plain.index[tensor], other] = min(1.0, max(0.0, 2 * row[3] - 0.5))
        else:
            if devices > 1 and row[1] < 0.5:
                placed[op] = other
            if devices == 1 or row[1] >= 0.1:
                first = max((order.index(v) + 1 for v in plain.before[op]), default=0)
                last = min((order.index(v) - 1 for v in plain.after[op]), default=len(order) - 1)
                moved.remove(op)
                moved.insert(first + int(row[3] * (last - first + 1)), op)
        new, reached = lifetimes_cost(plain, moved, placed, delayed, devices, size)
        if new <= energy * (1 - row[4]) ** -temperature:
            order, placement, delay, energy, least = moved, placed, delayed, new, min(least, reached)
    return order, placement, delay, energy, least


@dataclass
class Spread:
    """Where each tensor that is still needed has copies, had copies and was made; bytes per device."""

    copies: dict
    sent: dict
    resident: list
    persistent: list
    top: list

    def copy(self):
        """Return a copy to change."""
        sets = ({t: set(d) for t, d in part.items()} for part in (self.copies, self.sent))
        return Spread(*sets, list(self.resident), list(self.persistent), list(self.top))


def placements_under(plain, order, devices, limit):
    """Try every placement of an order's ops with the beam's rules for making room; yields those that fit."""
    share = sum(plain.persistent) // devices
    viewed = set(plain.alias.values())

    def reachable_from(copies, sent, home):
        return copies | (set(range(devices)) - sent) if home in copies else copies

    def run(step, placement, state):
        if step == len(order):
            yield placement
            return
        for device in range(devices):
            successor = place(step, device, placement, state.copy())
            if successor:
                yield from run(step + 1, {**placement, order[step]: device}, successor)

    def size_on(t, device, placement):
        return 0 if t in plain.alias and placement[t[0]] == device else plain.size[t]

    def fixed(s, device, extra=0):
        return max(s.persistent[device] + extra, share)

    def can_keep(step, placement, s, t, kept):
        for reader in set(order[step:]) & plain.readers[t]:
            meets = reachable_from(kept, s.sent[t] | kept, placement[t[0]])
            for other in plain.reads[reader] - {t}:
                if other in s.copies:
                    meets = meets & reachable_from(s.copies[other], s.sent[other], placement[other[0]])
            if not meets:
                return False
        return True

    def make_room(step, device, placement, s, over):
        best = None
        for t in s.copies:
            if device not in s.copies[t] or t in viewed or t in plain.reads[order[step]]:
                continue
            is_home, size = placement[t[0]] == device, size_on(t, device, placement)
            if size == 0 or (t in plain.final and is_home):
                continue
            kept, target = s.copies[t] - {device}, None
            if not kept:
                level = {d: s.resident[d] + fixed(s, d) for d in range(devices)}
                open_to = [d for d in level if d not in s.sent[t] and level[d] + plain.size[t] <= limit]
                if not is_home or not open_to:
                    continue
                target = min(open_to, key=level.get)
                kept = {target}
            if can_keep(step, placement, s, t, kept):
                rank = target is not None, size < over, size if size >= over else -size
                if best is None or rank < best[0]:
                    best = rank, t, target, size
        if best is None:
            return 0
        _, t, target, size = best
        if target is not None:
            s.copies[t].add(target)
            s.sent[t].add(target)
            s.resident[target] += plain.size[t]
            s.top[target] = max(s.top[target], s.resident[target])
        s.copies[t].remove(device)
        s.resident[device] -= size
        return size

    def place(step, device, placement, s):
        op = order[step]
        there = {t: reachable_from(s.copies[t], s.sent[t], placement[t[0]]) for t in plain.reads[op]}
        if any(device not in where for where in there.values()):
            return None
        lacking = [t for t in plain.inputs[op] if device not in s.copies[t]]
        need = s.resident[device] + plain.workspace[op] + plain.own[op] + sum(plain.size[t] for t in lacking)
        while (over := need + fixed(s, device, plain.persistent[op]) - limit) > 0:
            freed = make_room(step, device, placement, s, over)
            if not freed:
                return None
            need -= freed
        for t in lacking:
            s.copies[t].add(device)
            s.sent[t].add(device)
            s.resident[device] += plain.size[t]
        placement = {**placement, op: device}
        for t in plain.outputs[op]:
            s.copies[t], s.sent[t] = {device}, {device}
        s.resident[device] += plain.own[op]
        s.persistent[device] += plain.persistent[op]
        s.top[device] = max(s.top[device], need)
        if any(s.top[d] + s.persistent[d] > limit for d in range(devices)):
            return None
        done = set(order[: step + 1])
        for t in list(s.copies):
            if is_done_with(t, done):
                for where in s.copies.pop(t):
                    s.resident[where] -= size_on(t, where, placement)
        return s

    def is_done_with(t, done):
        views = [view for view, base in plain.alias.items() if base == t]
        over = plain.readers[t] <= done and all(view[0] in done for view in views)
        return over and t not in plain.final and all(is_done_with(view, done) for view in views)

    yield from run(0, {}, Spread({}, {}, [0] * devices, [0] * devices, [0] * devices))
