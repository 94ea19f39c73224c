"""Hashes of graphs: of what a graph holds, whatever its name and its file."""

from dataclasses import replace

import naive
import numpy as np
from schedopt.core.files.costgraph import format_graph, graph_hash, parse_graph, structure_hash


def test_the_hash_is_of_the_content():
    graphs = [naive.random_graph(np.random.default_rng([75, seed]), 6, whole_runtimes=True)[0] for seed in range(2)]
    assert graph_hash(graphs[0]) == graph_hash(replace(graphs[0], name="other"))
    longer = graphs[0].runtime.copy()
    longer[0] += 0.25
    assert len({graph_hash(g) for g in (*graphs, replace(graphs[0], runtime=longer))}) == 3


def test_the_hash_is_of_the_graph_not_of_its_file():
    graph, _ = naive.random_graph(np.random.default_rng(74), 12)  # with runtimes that files round, and a part of an
    digest = structure_hash(graph)  # op's tensors final
    for encoding in ("text", "binary"):
        for compress in (False, True):
            assert structure_hash(parse_graph(format_graph(graph, encoding, compress), "other name")) == digest
    assert len(digest) == 64
