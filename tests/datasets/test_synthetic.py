"""REGAL A.1.4 and table 2: shapes, dependencies and costs of synthetic graphs."""

import numpy as np
import pytest
from schedopt.datasets.synthetic import MODELS, SyntheticParameters, synthetic_graph


def draw(parameters, count):
    return [parameters.draw(index, np.random.default_rng([index, 7])) for index in range(count)]


@pytest.fixture(scope="module")
def graphs():
    return draw(SyntheticParameters(), 80)


@pytest.mark.slow
def test_one_source_and_one_sink_without_costs(graphs):
    for graph in graphs:
        sources, targets = graph.edges
        ops = set(range(graph.num_ops))
        assert ops - set(targets.tolist()) == {0}
        assert ops - set(sources.tolist()) == {graph.num_ops - 1}
        assert (graph.op_names[0], graph.op_names[-1]) == ("_SOURCE", "_SINK")
        assert graph.runtime[0] == graph.runtime[-1] == 0
        assert [graph.tensor_name(tensor) for tensor in graph.outputs(0)] == ["_SOURCE:control"]
        assert not graph.outputs(graph.num_ops - 1)
        assert not graph.workspace.any() and not graph.persistent.any()


@pytest.mark.slow
def test_edges_of_the_random_graph_models():
    nodes = 100
    mean = {}
    for model in MODELS:
        parameters = SyntheticParameters(nodes_low=nodes, nodes_high=nodes, models=(model,))
        counts = []
        for graph in draw(parameters, 30):
            sources, targets = graph.edges
            counts.append(int(((sources > 0) & (targets < nodes + 1)).sum()))
        mean[model] = np.mean(counts)
        if model == "barabasi-albert":
            assert set(counts) == {2 * (nodes - 2)}
        if model == "watts-strogatz":
            assert set(counts) == {2 * nodes}
    assert mean["erdos-renyi"] == pytest.approx(0.05 * nodes * (nodes - 1) / 2, rel=0.05)
    within, across = 4 * 25 * 24 / 2, 6 * 25 * 25
    assert mean["stochastic-block"] == pytest.approx(0.3 * within + 0.01 * across, rel=0.05)


@pytest.mark.slow
def test_outputs_and_dependencies_have_the_papers_probabilities(graphs):
    outputs, data, control_of_ops_with_outputs, ports = [], 0, 0, [0, 0]
    for graph in graphs:
        count = np.array([sum(not graph.is_control[t] for t in graph.outputs(op)) for op in range(graph.num_ops)])
        outputs.extend(count[1:-1].tolist())
        pointers, tensors = graph.inputs
        for op in range(1, graph.num_ops):
            for tensor in tensors[pointers[op] : pointers[op + 1]].tolist():
                producer = int(graph.tensor_producer[tensor])
                if graph.is_control[tensor]:
                    control_of_ops_with_outputs += count[producer] > 0
                else:
                    data += 1
                    if count[producer] == 2:
                        ports[tensor - int(graph.output_ptr[producer])] += 1
    share = np.bincount(outputs) / len(outputs)
    assert share == pytest.approx([0.1, 0.8, 0.1], abs=0.01)
    assert control_of_ops_with_outputs / (data + control_of_ops_with_outputs) == pytest.approx(0.2, abs=0.01)
    assert ports[0] / sum(ports) == pytest.approx(0.5, abs=0.03)


def touched(graph, op, inputs):
    pointers, tensors = graph.inputs
    total = sum(int(graph.tensor_size[t]) for t in graph.outputs(op))
    if inputs:
        total += sum(int(graph.tensor_size[t]) for t in tensors[pointers[op] : pointers[op + 1]])
    return total


@pytest.mark.slow
@pytest.mark.parametrize(("costs", "inputs"), [("inputs-outputs", True), ("outputs", False)])
def test_runtimes_are_the_bytes_touched(costs, inputs):
    exact = SyntheticParameters(costs=costs, noise_std=0)
    for graph in draw(exact, 8):
        for op in range(1, graph.num_ops - 1):
            assert graph.runtime[op] == touched(graph, op, inputs)
    noisy = []
    for graph in draw(SyntheticParameters(costs=costs), 40):
        ops = [op for op in range(1, graph.num_ops - 1) if touched(graph, op, inputs)]
        noisy.extend(graph.runtime[op] / touched(graph, op, inputs) - 1 for op in ops)
    assert np.mean(noisy) == pytest.approx(0, abs=0.005)
    assert np.std(noisy) == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
def test_ops_without_outputs_have_control_dependents_only(weights):
    parameters = SyntheticParameters(output_weights=weights, control_probability=0)
    graph = synthetic_graph(parameters, "erdos-renyi", np.random.default_rng(0))
    read = graph.read_tensor[graph.tensor_producer[graph.read_tensor] > 0]
    assert graph.is_control[read].all() == (weights[0] == 1)
