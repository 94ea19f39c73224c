"""Links are those of the problem, in the kernels' units."""

import naive
import numpy as np
from schedopt.core.kernels.links import links_of
from schedopt.core.problem.problem import Problem


def test_links_of_a_problem():
    graph, _ = naive.random_graph(np.random.default_rng(51), 4)
    assert links_of(Problem(graph, devices=3)) == (3, 0.0, 0.0)
    assert links_of(Problem(graph, devices=2, bandwidth=2e6, latency=3)) == (2, 3.0, 0.5)
