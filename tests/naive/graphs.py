"""Graphs as sets and lists, read from what they are made from; random ones, and random orders of their ops."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

CONTROL = "control"


@dataclass
class Plain:
    """A graph as sets and lists; a tensor is `(op, port)`, a control tensor `(op, "control")`.

    `alias` maps a view to the tensor it is a view of; `reads[op]` holds the tensors that an op reads, control
    included; `readers[tensor]` the ops that read it; `index[tensor]` its place among all tensors; `everywhere` holds
    what no device has to be sent.
    """

    runtime: list[float] = field(default_factory=list)
    workspace: list[int] = field(default_factory=list)
    persistent: list[int] = field(default_factory=list)
    outputs: list[list] = field(default_factory=list)
    reads: list[set] = field(default_factory=list)
    size: dict = field(default_factory=dict)
    alias: dict = field(default_factory=dict)
    final: set = field(default_factory=set)
    runs_once: set = field(default_factory=set)

    def __post_init__(self):
        self.everywhere = set()
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
        {op for op, once in enumerate(graph.runs_once.tolist()) if once},
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
            if op["final"][port]:
                final.add(tensor)
        if at in waited:
            made.append((at, CONTROL))
            size[at, CONTROL] = 0
        outputs.append(made)
        reads.append(set(arguments) | {(op_of_id[i], CONTROL) for i in op["control"]})
    costs = ([op[key] for op in spec] for key in ("runtime", "workspace", "persistent"))
    once = {at for at, op in enumerate(spec) if op.get("once")}
    return Plain(*costs, outputs, reads, size, alias, final, once)


def random_spec(rng, ops, *, per_port_final=True, whole_runtimes=False, aliases=True, edges=1.4, runs_once=0.0):
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
                "final": final,
                "runtime": float(rng.integers(0, 9)) + (0.0 if whole_runtimes else float(rng.random())),
                "workspace": int(rng.choice([0, 0, 0, 4, 20])),
                "persistent": int(rng.choice([0, 0, 0, 7])),
            }
        )
    for op in spec if runs_once else ():
        op["once"] = bool(rng.random() < runs_once)
    if rng.random() < 0.6:
        spec = [spec[i] for i in rng.permutation(ops)]
    return spec


def build(spec, name="random"):
    """Build a specification with the code under test."""
    from schedopt.core.graph.builder import GraphBuilder

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
