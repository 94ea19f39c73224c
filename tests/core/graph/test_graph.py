"""The graph: its arrays against plain sets, names and ids, order, what it refuses (files: test_costgraph_damaged)."""

import dataclasses
import pickle
from itertools import pairwise

import naive
import numpy as np
import pytest
from models.small_graphs import sketch
from schedopt import GraphBuilder, GraphError, UsageError

SEEDS = range(25)


def rows(compressed):
    pointers, columns = compressed
    return [columns[a:b].tolist() for a, b in pairwise(pointers)]


@pytest.mark.parametrize("seed", SEEDS)
def test_arrays_say_what_was_added(seed):
    rng = np.random.default_rng([50, seed])
    spec = naive.random_spec(rng, int(rng.integers(1, 16)))
    graph, plain = naive.build(spec), naive.plain_of_spec(spec)
    assert (graph.num_ops, graph.num_tensors) == (len(spec), len(plain.tensors))
    assert graph.op_ids.tolist() == [op["op_id"] for op in spec]
    assert graph.runtime.tolist() == plain.runtime
    names = [graph.tensor_name(t) for t in range(graph.num_tensors)]
    assert names == [f"{spec[op]['name']}:{port}" for op, port in plain.tensors]
    for at, tensor in enumerate(plain.tensors):
        assert graph.tensor_size[at] == plain.size[tensor]
        assert graph.is_final[at] == (tensor in plain.final)
        assert graph.is_control[at] == (tensor[1] == naive.CONTROL)
        assert graph.root[at] == plain.index[plain.root(tensor)]
        assert graph.tensor_producer[at] == tensor[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_adjacency_is_distinct_and_keeps_the_order_written(seed):
    rng = np.random.default_rng([51, seed])
    spec = naive.random_spec(rng, 14, edges=2.0)
    graph, plain = naive.build(spec), naive.plain_of_spec(spec)
    op_of_id = {op["op_id"]: at for at, op in enumerate(spec)}
    for at, op in enumerate(spec):
        written = [plain.index[op_of_id[i], port] for i, port in op["inputs"]]
        waits = [plain.index[op_of_id[i], naive.CONTROL] for i in op["control"]]
        assert rows((graph.read_ptr, graph.read_tensor))[at] == written + waits
        assert rows(graph.inputs)[at] == list(dict.fromkeys(written + waits))
    for tensor, consumers in zip(plain.tensors, rows(graph.consumers), strict=True):
        assert sorted(consumers) == sorted(plain.readers[tensor])
    for op in plain.ops:
        assert sorted(rows(graph.predecessors)[op]) == sorted(plain.before[op])
        assert rows(graph.successors)[op] == sorted(plain.after[op])


@pytest.mark.parametrize("seed", SEEDS)
def test_input_order_takes_the_smallest_ready_index(seed):
    graph, plain = naive.random_graph(np.random.default_rng([52, seed]), 15)
    order = []
    while ready := plain.ready(order):
        order.append(min(ready))
    expected = sorted(order) if all(max(before, default=-1) < op for op, before in enumerate(plain.before)) else order
    assert graph.input_order.tolist() == expected


@pytest.mark.parametrize("seed", range(10))
def test_the_place_of_an_op_in_the_file_does_not_change_what_it_reads(seed):
    rng = np.random.default_rng([53, seed])
    spec = naive.random_spec(rng, 12)
    one, two = naive.build(spec), naive.build([spec[i] for i in rng.permutation(12)])

    def described(graph):
        names = [graph.tensor_name(t) for t in range(graph.num_tensors)]
        aliases = {n: names[a] if a >= 0 else None for n, a in zip(names, graph.alias_of.tolist(), strict=True)}
        return {n: [names[t] for t in row] for n, row in zip(graph.op_names, rows(graph.inputs), strict=True)}, aliases

    assert described(one) == described(two)


def test_equality_ignores_the_graphs_name_and_sees_every_value():
    op = {"inputs": [(0, 0)], "control": [0], "outputs": [2, 3], "final": [False, True], "aliases": [-1, 0]}

    def graph_with(changes, name="net"):
        builder = GraphBuilder(name)
        builder.add_op("a", outputs=[1, 1])
        builder.add_op(**{"name": "b", **op, **changes})
        return builder.build()

    graph = graph_with({})
    assert graph == graph_with({}, "other")
    assert graph != "net"
    for field, value in (
        ("name", "c"),
        ("op_id", 2),
        ("runtime", 1.0),
        ("workspace", 1),
        ("persistent", 1),
        ("outputs", [2, 4]),
        ("final", [True, True]),
        ("aliases", [-1, -1]),
        ("inputs", [(0, 1)]),
        ("inputs", [(0, 0), (0, 0)]),
        ("control", []),
    ):
        assert graph != graph_with({field: value}), field


def test_arrays_cannot_be_written_to():
    graph, _ = naive.random_graph(np.random.default_rng(55), 5)
    for array in (graph.runtime, graph.tensor_size, graph.root, *graph.inputs, *graph.successors, graph.input_order):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_names_are_unique_whatever_was_given():
    builder = GraphBuilder("names")
    given = ["a", "a", "", "2", "a#1", "", "a"]
    for name in given:
        builder.add_op(name)
    names = builder.build().op_names
    assert len(set(names)) == len(given)
    assert [names[0], names[3], names[4], names[5]] == ["a", "2", "a#1", "5"]
    assert all(name.startswith(wanted) for name, wanted in zip(names, given, strict=True))


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"runtime": float("nan")}, "'a' has the runtime nan"),
        ({"runtime": -0.5}, "'a' has the runtime -0.5"),
        ({"workspace": 2**63}, "'a' has the workspace 9223372036854775808"),
        ({"outputs": [3, 2**63]}, "'a' has an output of 9223372036854775808 bytes"),
        ({"outputs": [2**62], "workspace": 2**62}, "sum of all sizes exceeds"),
        ({"op_id": 2**31}, "'a' has the id 2147483648"),
    ],
)
def test_costs_out_of_range(costs, message):
    builder = GraphBuilder("net")
    builder.add_op("first", op_id=7, outputs=[1])
    builder.add_op("a", **costs)
    with pytest.raises(GraphError, match=f"^net: .*{message}"):
        builder.build()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"outputs": [1, 2.5]}, "op 'a' has the output size 2.5, which is not a whole number"),
        ({"outputs": [True]}, "op 'a' has the output size True"),
        ({"workspace": 1.5}, "op 'a' has the workspace 1.5"),
        ({"runtime": "3us"}, "op 'a' has the runtime '3us', which is not a number"),
        ({"outputs": [1, 1], "aliases": [-1]}, "op 'a' has 2 outputs, but 1 values of aliases"),
        ({"outputs": [1, 1], "final": [True]}, "op 'a' has 2 outputs, but 1 values of final"),
    ],
)
def test_a_graph_builder_rounds_nothing_and_moves_nothing_to_the_next_op(values, message):
    builder = GraphBuilder("net")
    builder.add_op("first", outputs=[1])
    with pytest.raises(UsageError, match=f"^net: {message}"):
        builder.add_op("a", **values)
        builder.build()
    builder = GraphBuilder("net")
    builder.add_op("a", outputs=np.array([3]), runtime=np.float32(2), workspace=np.int64(5))
    assert builder.build().tensor_size.tolist() == [3]


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"outputs": 1024}, "outputs of op 'y' are a list .* not 1024"),
        ({"inputs": [0]}, r"an input of op 'y' is a pair \(op id, port\), not 0"),
        ({"inputs": [("x", 0)]}, r"not \('x', 0\)"),
    ],
)
def test_a_builder_says_what_inputs_and_outputs_are_and_goes_on(op, message):
    builder = GraphBuilder("m")
    builder.add_op("x", outputs=[4])
    with pytest.raises(UsageError, match=message):
        builder.add_op("y", **op)
    assert repr(builder) == "GraphBuilder('m': 1 ops)"
    assert builder.build().num_ops == 1


def test_no_array_of_a_derived_graph_can_be_written():
    graph = sketch("op -> 8 us=1", "one")
    runtime = np.array([2.0])
    for other in (dataclasses.replace(graph, runtime=runtime), pickle.loads(pickle.dumps(graph))):
        assert not any(array.flags.writeable for array in vars(other).values() if isinstance(array, np.ndarray))
    assert runtime.flags.writeable


def test_what_writes_in_place_waits_for_readers_and_nobody_runs_again():
    builder = GraphBuilder("in place")
    x = builder.add_op("x", outputs=[8])
    view = builder.add_op("view", inputs=[(x, 0)], outputs=[8], aliases=[0])
    builder.add_op("early", inputs=[(view, 0)], outputs=[1])
    builder.add_op("other", inputs=[(x, 0)], outputs=[1])
    relu = builder.add_op("relu_", inputs=[(x, 0)], outputs=[8], aliases=[0], writes=[0])
    late = builder.add_op("late", inputs=[(relu, 0)], outputs=[8], aliases=[0])
    builder.add_op("add_", inputs=[(late, 0), (late, 0)], writes=[0])
    builder.add_op("free", outputs=[1])
    graph = builder.build()
    assert builder.build() == graph
    waits = {op.name: {name.partition(":")[0] for name in op.inputs} for op in graph.ops}
    assert waits["relu_"] == {"x", "view", "early", "other"}
    assert waits["add_"] == {"late"} and graph.tensors[-1].name == "free:0", "no control beside what it reads"
    assert [op.name for op in graph.ops if not op.once] == ["free"]
    builder.add_op("stale", inputs=[(view, 0)])
    with pytest.raises(GraphError, match=r"'stale' reads port 0 of op 'view', which op 'add_' added before it wrote"):
        builder.build()
    with pytest.raises(UsageError, match="writes its input 1, but it has 1 inputs"):
        builder.add_op("wrong", inputs=[(x, 0)], writes=[1])


def test_ops_and_tensors_are_listed():
    builder = GraphBuilder("listed")
    a = builder.add_op("a", outputs=[8, 4], runtime=2.5, workspace=1, persistent=3, op_id=7)
    builder.add_op("b", inputs=[(a, 1), (a, 1)], control=[a], outputs=[4], aliases=[0], final=True, once=True)
    graph = builder.build()
    assert graph.ops == (
        ("a", 7, 2.5, 1, 3, False, (), ("a:0", "a:1", "a:control")),
        ("b", 1, 0.0, 0, 0, True, ("a:1", "a:1", "a:control"), ("b:0",)),
    )
    assert graph.tensors[1:] == (
        ("a:1", 4, False, False, "", "a", ("b",)),
        ("a:control", 0, False, True, "", "a", ("b",)),
        ("b:0", 4, True, False, "a:1", "b", ()),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_buffers_are_the_groups_of_views(seed):
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, 12)
    buffers = graph.buffers
    roots = [t for t in plain.tensors if t not in plain.alias and t[1] != naive.CONTROL]
    users = rows((buffers.user_ptr, buffers.users))
    used = rows((buffers.used_ptr, buffers.used))
    assert len(users) == len(roots)
    for at, root in enumerate(roots):
        assert buffers.size[at] == plain.size[root]
        assert buffers.producer[at] == root[0]
        assert buffers.is_final[at] == plain.is_kept(root)
        assert sorted(users[at]) == sorted(plain.users(root))
    for op in plain.ops:
        read = {plain.root(t) for t in plain.reads[op] if t[1] != naive.CONTROL}
        assert sorted(used[op]) == sorted(roots.index(root) for root in read)
        assert [roots[b][0] for b in range(buffers.made_ptr[op], buffers.made_ptr[op + 1])] == [op] * (
            buffers.made_ptr[op + 1] - buffers.made_ptr[op]
        )
    assert buffers.made_ptr[-1] == len(roots)
    assert buffers.own.tolist() == plain.own
