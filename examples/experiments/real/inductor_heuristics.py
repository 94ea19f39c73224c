"""Peak memory of real graphs on one device: `auto` against the three orders that PyTorch Inductor chooses from.

usage: python examples/experiments/real/inductor_heuristics.py FOLDER... [--time-limit SECONDS, default 10]
       [--jobs N, default 1]

`torch._inductor.memory` orders the buffers of each graph by its own code (least peak memory first, breadth first,
depth first); all orders are priced by schedopt's cost model. Inductor knows no workspace; views are part of their
buffer. Prints per folder how `auto` does against the best of the three, and against the best of these and the
program order, among which Inductor chooses. A laptop hour: 200 graphs with the default take half of it at most;
graphs proven optimal end at once.
"""

import argparse
import math
import statistics
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

HEURISTICS = ("lpmf", "bfs", "dfs")
STACK = 512 * 2**20
DEEP = 10**6


def scheduler_nodes(graph):
    """Return what Inductor's heuristics look at: a node per op, and the buffers by name."""
    b = graph.buffers
    nodes = [SchedulerNode(op) for op in range(graph.num_ops)]

    def grouped(pointers, items):
        return [items[start:end].tolist() for start, end in pairwise(pointers.tolist())]

    buffers = [
        SchedulerBuffer(f"buffer{at}", size, [nodes[op] for op in users])
        for at, (size, users) in enumerate(zip(b.size.tolist(), grouped(b.user_ptr, b.users), strict=True))
    ]
    reads, predecessors = grouped(b.used_ptr, b.used), grouped(b.predecessor_ptr, b.predecessors)
    successors = grouped(b.successor_ptr, b.successors)
    for op, (start, end) in enumerate(pairwise(b.made_ptr.tolist())):
        nodes[op].outputs = buffers[start:end]
        nodes[op].unmet_dependencies = [SimpleNamespace(name=nodes[p].name) for p in predecessors[op]]
        nodes[op].mpi_node = SimpleNamespace(
            index=op,
            size=int(b.own[op]),
            pred_buffers=[buffers[at] for at in reads[op]],
            pred_nodes=[nodes[p] for p in predecessors[op]],
            succ_nodes=[nodes[s] for s in successors[op]],
        )
    # Inductor takes the order of its nodes for the program's.
    program = [nodes[op] for op in graph.input_order.tolist()]
    for index, node in enumerate(program):
        node.mpi_node.index = index
    final = {buffers[at].name for at in range(len(buffers)) if b.is_final[at]}
    return program, {buffer.name: buffer for buffer in buffers}, final


class SchedulerNode:
    """An op, with the methods and attributes of Inductor's nodes."""

    def __init__(self, op):
        self.op, self.name = op, f"op{op}"

    def get_name(self):
        return self.name

    def get_outputs(self):
        return self.outputs

    def get_buffer_names(self):
        return [self.name, *(buffer.name for buffer in self.outputs)]


class SchedulerBuffer:
    """A buffer, with the methods and attributes of Inductor's."""

    def __init__(self, name, size, users):
        self.name = name
        self.mpi_buffer = SimpleNamespace(size_alloc=size, size_free=size, succ_nodes=users)

    def get_name(self):
        return self.name


def inductor_orders(graph):
    """Return the three orders by name."""
    from torch._inductor.memory import topological_sort_bfs, topological_sort_dfs, topological_sort_lpmf

    nodes, buffers, final = scheduler_nodes(graph)
    ordered = {
        "lpmf": topological_sort_lpmf(nodes, {}, buffers, final),
        "bfs": topological_sort_bfs(nodes),
        "dfs": on_a_deep_stack(topological_sort_dfs, nodes),
    }
    return {name: [node.op for node in order] for name, order in ordered.items()}


def on_a_deep_stack(function, argument):
    """Call a function that recurses as deep as the graph."""
    sys.setrecursionlimit(DEEP)
    threading.stack_size(STACK)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(function, argument)
        threading.stack_size(0)
        return future.result()


def peaks(path, seconds):
    """Return the peaks of one graph in bytes: Inductor's orders, auto, and the input order."""
    from schedopt.core.files.costgraph import read_graph
    from schedopt.core.model.simulator import input_peak, simulate
    from schedopt.core.problem.problem import Problem
    from schedopt.core.problem.schedule import Schedule
    from schedopt.core.solve.solve import solve

    problem = Problem(read_graph(path))
    orders = inductor_orders(problem.graph)
    found = {name: simulate(problem, Schedule.single_device(order)).peak for name, order in orders.items()}
    return {**found, "auto": solve(problem, "auto", time_limit=seconds).value, "input": input_peak(problem.graph)}


def line(folder, against, rows, names):
    """Say how auto does against the best of some orders."""
    best = [min(row[name] for name in names) for row in rows]
    gains = [100 * (1 - row["auto"] / least) for row, least in zip(rows, best, strict=True)]
    signs = [(row["auto"] > least) - (row["auto"] < least) for row, least in zip(rows, best, strict=True)]
    error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    outcomes = f"{signs.count(-1):>6} {signs.count(0):>6} {signs.count(1):>6}"
    improvement = f"{statistics.mean(gains):.2f} ± {error:.2f}%"
    return f"{folder:<12} {len(rows):>6} {against:<22} {outcomes} {improvement:>16} {max(gains):>8.2f}%"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--time-limit", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    try:
        from torch._inductor.memory import topological_sort_bfs, topological_sort_dfs, topological_sort_lpmf  # noqa: F401
    except ImportError as error:
        print(f"skipped: this PyTorch lacks the heuristics of torch._inductor.memory ({error})")
        return
    from joblib import Parallel, delayed
    from schedopt.core.files.costgraph import find_graphs

    print("auto's peak against the best of the heuristics' orders, mean ± standard error over graphs")
    print(f"{'folder':<12} graphs {'against the best of':<22}   wins   ties losses {'improvement':>16} {'most':>9}")
    for folder in options.folders:
        rows = Parallel(options.jobs)(delayed(peaks)(path, options.time_limit) for path in find_graphs([folder]))
        print(line(folder.name, "three heuristics", rows, HEURISTICS))
        print(line(folder.name, "these and input order", rows, (*HEURISTICS, "input")), flush=True)


if __name__ == "__main__":
    main()
