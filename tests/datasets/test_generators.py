"""The contract that every family of random graphs keeps."""

import numpy as np
import pytest
from schedopt import UsageError
from schedopt.core.files.costgraph import format_graph, parse_graph
from schedopt.datasets.layered import LayeredParameters
from schedopt.datasets.recipe import Recipe, generate
from schedopt.datasets.synthetic import MODELS, SyntheticParameters

FAMILIES = {"layered": LayeredParameters(nodes=40)} | {
    model: SyntheticParameters(nodes_low=40, nodes_high=40, models=(model,)) for model in MODELS
}
EXTRA_OPS = {"layered": 0}


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


def files(recipe, count, jobs=1):
    return [drawn.data for drawn in generate(recipe, count, jobs)]


def test_same_seed_gives_the_same_bytes_and_another_seed_others(name):
    family = FAMILIES[name]
    assert files(Recipe(family, seed=5), 6) == files(Recipe(family, seed=5), 6)
    assert not set(files(Recipe(family, seed=5), 6)) & set(files(Recipe(family, seed=6), 6))


def test_graphs_are_valid_ordered_and_of_the_size_asked_for(name):
    for index in range(10):
        graph = FAMILIES[name].draw(index, np.random.default_rng(index))
        assert graph.num_ops == 40 + EXTRA_OPS.get(name, 2)
        assert np.array_equal(graph.input_order, np.arange(graph.num_ops))
        assert not graph.is_final.any()
        assert (graph.alias_of == -1).all()
        assert parse_graph(format_graph(graph), "again") == graph


@pytest.mark.slow
@pytest.mark.parametrize("dedup", ["topology", "in-degrees"])
def test_duplicates_are_drawn_again(dedup):
    recipe = Recipe(LayeredParameters(nodes=6), dedup=dedup)
    drawn = list(generate(recipe, 12))
    assert len({d.key for d in drawn}) == len({d.topology for d in drawn}) == 12
    assert sum(d.attempt for d in drawn) > 0
    assert drawn == list(generate(recipe, 12, jobs=2))


@pytest.mark.slow
def test_too_few_distinct_graphs_is_an_error_that_counts_them():
    with pytest.raises(UsageError, match=r"found \d distinct topologies; of 100 more draws 100 repeated"):
        list(generate(Recipe(LayeredParameters(nodes=3)), 50))
    with pytest.raises(UsageError, match="distinct in-degree sequences"):
        list(generate(Recipe(LayeredParameters(nodes=3), dedup="in-degrees"), 50))


def test_a_rejected_graph_is_drawn_from_the_same_model_again():
    small = SyntheticParameters(nodes_low=6, nodes_high=6)

    def keep(graph, rng):
        return rng.random() < 0.3

    drawn = list(generate(Recipe(small, keep=(keep,)), 8))
    assert sum(d.attempt for d in drawn) > 8
    assert [d.name.rsplit("-", 1)[0] for d in drawn] == [*MODELS, *MODELS]
