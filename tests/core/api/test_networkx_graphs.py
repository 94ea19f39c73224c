"""networkx graphs: there and back, every attribute, each way to be wrong."""

import networkx as nx
import numpy as np
import pytest
import schedopt
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def graphs(draw):
    """Any graph: several outputs, views, repeated reads, control, finals, costs of all kinds."""
    builder = schedopt.GraphBuilder(draw(st.sampled_from(["net", "net.v1", "a/b"])))
    made = []
    for op in range(draw(st.integers(1, 8))):
        inputs = draw(st.lists(st.sampled_from(made), max_size=4)) if made else []
        sizes = draw(st.lists(st.integers(0, 10**9), max_size=3))
        aliases = [draw(st.integers(-1, len(inputs) - 1)) if inputs else -1 for _ in sizes]
        builder.add_op(
            draw(st.sampled_from(["", "x", f"op{op}"])),
            inputs=inputs,
            control=sorted(draw(st.sets(st.integers(0, op - 1), max_size=2))) if op else [],
            outputs=[0 if alias >= 0 else size for alias, size in zip(aliases, sizes, strict=True)],
            aliases=aliases,
            final=[draw(st.booleans()) for _ in sizes],
            runtime=draw(st.floats(0, 1e6)),
            workspace=draw(st.integers(0, 10**6)),
            persistent=draw(st.integers(0, 10**6)),
        )
        made += [(op, port) for port in range(len(sizes))]
    return builder.build()


@pytest.mark.slow
@given(graphs())
def test_networkx_and_back_is_the_same_graph(graph):
    back = schedopt.from_networkx(schedopt.to_networkx(graph))
    assert back == graph
    assert back.name == graph.name


def test_networkx_attributes_may_be_texts_tuples_and_arrays():
    model = nx.DiGraph()
    model.add_node(1, size=("4KiB", 2), runtime="2ms", final=np.array([True, False]))
    model.add_node(("b", 2), output_size=np.int64(7), workspace="1kB")
    model.add_edge(1, ("b", 2), port=1)
    graph = schedopt.from_networkx(model, name="mine")
    assert (graph.name, graph.op_names) == ("mine", ("1", "('b', 2)"))
    assert graph.tensor_size.tolist() == [4096, 2, 7]
    assert graph.is_final.tolist() == [True, False, False]
    assert (graph.runtime.tolist(), graph.workspace.tolist()) == ([2000.0, 0.0], [0, 1000])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nx.Graph([("a", "b")]), "the networkx graph is undirected"),
        (nx.DiGraph(), "graph: the networkx graph has no nodes"),
        ({"a": ["b"]}, "a networkx DiGraph is wanted, not dict"),
        (nx.DiGraph([(1, "1")]), "two nodes of the networkx graph have the same text"),
    ],
)
def test_what_is_no_networkx_graph_of_ops(model, message):
    with pytest.raises(schedopt.UsageError, match=message):
        schedopt.from_networkx(model, default_size=1)
