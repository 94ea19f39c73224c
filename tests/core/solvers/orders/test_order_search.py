"""Order search: its optima and its proofs, stretches glued together, and budgets of any size."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Problem, Search
from schedopt.core.bounds import order_proofs
from schedopt.core.solve.solve import solve
from schedopt.core.solvers.orders import order_search


@pytest.mark.parametrize("seed", seeds(80, quick=4))
def test_it_proves_the_optimum(seed):
    """Alone, without the heuristics that `auto` begins with; wide graphs, narrow ones, and separators between."""
    rng = np.random.default_rng([13, seed])
    graph, plain = naive.random_graph(rng, 7 + seed % 3, edges=float(rng.choice([0.8, 1.4, 2.2, 4.0])))
    optimum = naive.least_peak(plain)
    result = solve(Problem(graph), "order-search", time_limit=60.0, seed=seed)
    assert (result.value, result.lower_bound, result.status) == (optimum, optimum, "optimal")


@pytest.mark.parametrize("seed", seeds(100, quick=4))
def test_each_part_alone_proves_nothing_false(seed, monkeypatch):
    """Graphs as small as these need no short stretches, tightened beams or refuted targets unless cuts are left out."""
    rng = np.random.default_rng([132, seed])
    graph, plain = naive.random_graph(rng, int(rng.integers(4, 10)), edges=float(rng.choice([0.5, 0.8, 1.4, 2.2])))
    optimum = naive.least_peak(plain)
    monkeypatch.setattr(order_search, "min_cuts", lambda *arguments, **options: iter(()))
    monkeypatch.setattr(order_search, "FIRST_BEAMS", () if seed % 4 else (1, 10))
    monkeypatch.setattr(order_search, "FIRST_SIZE", 1)
    monkeypatch.setattr(order_search, "FIRST_EFFORT", int(rng.choice([1, 10, 100])))
    monkeypatch.setattr(order_search, "PROOF_ARCS", int(rng.choice([1, 1000, 100_000_000])))
    monkeypatch.setattr(order_search, "SHORTEST_STRETCH", 2)
    monkeypatch.setattr(order_search, "LONGEST_STRETCH", 5)
    monkeypatch.setattr(order_search, "LARGEST_RELATED", 10_000 if seed % 3 else 0)
    monkeypatch.setattr(order_proofs, "ARCS_PER_CALL", int(rng.choice([1, 100, 10_000])))
    lower_bound = max(0, optimum - int(rng.integers(0, 60)))
    search = Search(Problem(graph), seed=seed, lower_bound=lower_bound)
    search.offer_order(np.array(naive.random_order(rng, plain)))
    order_search.solve(search, order_search.Parameters())
    assert search.best_value == search.lower_bound == optimum


def chained(rng, parts, ops):
    """Random graphs in a row, between any two of them an op that waits for all of one and starts all of the other."""
    whole = []
    for part in range(parts):
        shift, before = 1000 * (part + 1), [part - 1] if part else []
        for op in naive.random_spec(rng, ops):
            inputs = [(other + shift, port) for other, port in op["inputs"]]
            control = [other + shift for other in op["control"]] + before
            named = {"name": f"{op['name']}/{part}", "op_id": op["op_id"] + shift}
            whole.append({**op, **named, "inputs": inputs, "control": control})
        waits = [op["op_id"] for op in whole if op["op_id"] >= shift]
        whole.append({"name": f"join{part}", "op_id": part, "control": waits, "outputs": [3], "final": part % 2 > 0})
    return naive.build(whole)


@pytest.mark.parametrize("seed", seeds(30, quick=4))
def test_stretches_between_separators_are_solved_apart(seed):
    graph = chained(np.random.default_rng([131, seed]), 4, 9)
    exact = solve(Problem(graph), "approximate-dp:beam_size=1000000")
    assert exact.status == "optimal"
    search = Search(Problem(graph), seed=seed)
    order_search.solve(search, order_search.Parameters())
    assert (search.best_value, search.lower_bound) == (exact.value, exact.value)
    ends = order_search._Stretches(search).ends.tolist()
    assert len(ends) >= 4
    joined = [order_search._Stretches(search).order[end - 1] for end in ends]
    assert {f"join{part}" for part in range(4)} <= {graph.op_names[op] for op in joined}


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", range(1, 30))
def test_it_ends_within_any_number_of_evaluations(evaluations):
    graph, _ = naive.random_graph(np.random.default_rng(130), 60)
    result = solve(Problem(graph), "order-search", evaluations=evaluations)
    assert result.evaluations <= evaluations
    assert result.is_repeatable
