"""`schedopt.diff`: what is held at one peak alone, what two graphs differ in, and what cannot be compared."""

import json

import numpy as np
import pytest
import schedopt
from models.seeds import seeds
from naive.graphs import random_graph
from schedopt import GraphBuilder
from schedopt.core.graph.annotations import Annotations, Resident


def layers(sizes, modules=True, extra=None):
    """A chain of layers of two ops each, named as PyTorch numbers them, and a weight for each layer."""
    builder, names, paths, residents = GraphBuilder("net"), [], [], []
    kinds = [(layer, kind) for layer in range(len(sizes)) for kind in ("conv", "relu")]
    if extra is not None:
        kinds.insert(2 * extra, ("extra", "conv"))
    for op, (layer, kind) in enumerate(kinds):
        number = sum(name.startswith(kind) for name in names)
        size = 50 if layer == "extra" else sizes[layer]
        names.append(f"{kind}_{number}" if number else kind)
        paths.append(f"layer.{layer}")
        weight = 10 if kind == "conv" else 0
        builder.add_op(names[-1], inputs=[(op - 1, 0)] if op else [], outputs=[size], persistent=weight)
        if weight:
            residents.append(Resident(f"layer.{layer}.weight", "parameter", weight, op))
    known = Annotations(
        modules=tuple(paths),
        lines=("net.py:7",) * len(names),
        phases=("forward",) * len(names),
        residents=tuple(residents),
    )
    return builder.build(known if modules else Annotations())


@pytest.mark.parametrize("seed", seeds(20, quick=4))
@pytest.mark.parametrize("devices", [1, 2])
def test_what_is_held_alone_makes_up_the_difference(seed, devices):
    graph, _ = random_graph(np.random.default_rng(seed), 15)
    problem = schedopt.Problem(graph, devices=devices)
    results = [schedopt.solve(problem, "random", seed=s, evaluations=1) for s in (seed, 99)]
    found = schedopt.diff(*results, graph)
    for peak, alone, result in zip(found.peaks, found.held_by_one, results, strict=True):
        assert peak.memory == result.peak_memory
        assert peak.memory == sum(h.size for h in alone) + found.shared + peak.workspace + peak.persistent
    a, b = ({holder.name for holder in alone} for alone in found.held_by_one)
    assert not a & b
    same = schedopt.diff(results[0], results[0], graph)
    assert same.held_by_one == ((), ())


def test_schedules_are_read_and_named_by_their_files(diamond, diamond_file, tmp_path):
    for method in ("dfs", "bfs"):
        schedopt.solve(diamond, method).save(tmp_path / f"{method}.json")
    found = schedopt.diff(tmp_path / "dfs.json", tmp_path / "bfs.json", diamond_file)
    assert found.names == ("dfs", "bfs")
    assert schedopt.diff("input", list(diamond.op_names), diamond).names == ("input", "b")
    (tmp_path / "other").mkdir()
    schedopt.solve(diamond, "dfs").save(tmp_path / "other" / "dfs.json")
    paths = (str(tmp_path / "dfs.json"), str(tmp_path / "other" / "dfs.json"))
    assert schedopt.diff(*paths, diamond).names == paths
    document = json.loads(found.json())
    assert [schedule["schedule"] for schedule in document["schedules"]] == ["dfs", "bfs"]
    assert document["schedules"][0]["memory"] == found.peaks[0].memory
    assert "dfs: peak 6.50 KiB at step" in found.title()


def test_two_graphs_of_one_model_with_another_batch():
    found = schedopt.diff(layers([100, 300]), layers([200, 600]))
    assert (found.added, found.removed) == ((), ())
    assert [(c.name, c.source, c.before, c.after) for c in found.changes] == [
        ("conv_1:0", "layer.1, net.py:7", 300, 600),
        ("relu_1:0", "layer.1, net.py:7", 300, 600),
        ("conv:0", "layer.0, net.py:7", 100, 200),
        ("relu:0", "layer.0, net.py:7", 100, 200),
    ]
    a, b = found.totals
    assert (a["tensor_bytes"], b["tensor_bytes"]) == (800, 1600)
    assert (a["persistent_bytes"], b["persistent_bytes"]) == (20, 20)
    for total, roles in zip(found.totals, found.roles, strict=True):
        assert sum(roles.values()) == total["input_peak"]
    assert found.roles == ({"activations": 600, "parameters": 20}, {"activations": 1200, "parameters": 20})
    assert found.phases == ({"forward": 620}, {"forward": 1220})
    assert found.title() == "a and b: 0 ops added, 0 removed", "one name for both tells nothing"


def test_a_layer_put_in_between_does_not_rename_those_after_it():
    before, after = layers([100, 300]), layers([100, 300], extra=1)
    found = schedopt.diff(before, after)
    assert (found.added, found.removed) == (("conv_1",), ())
    assert {(c.name, c.before, c.after) for c in found.changes} == {
        ("conv_1:0", None, 50),
        ("parameter layer.extra.weight", None, 10),
    }
    assert found.totals[1]["ops"] - found.totals[0]["ops"] == 1
    assert schedopt.diff(after, before).removed == ("conv_1",)


def test_tables_list_the_largest_and_sum_up_the_rest():
    from schedopt.core.base.tables import text_of

    found = schedopt.diff(layers([100, 300]), layers([200, 600]))
    text = " ".join(text_of(found.table(1)).replace("│", " ").split())
    assert "conv_1:0 [layer.1, net.py:7] 0.29 KiB 0.59 KiB +0.29 KiB 3 more 0.49 KiB 0.98 KiB +0.49 KiB" in text
    assert "peak in program order 0.61 KiB 1.19 KiB +0.59 KiB" in text
    assert "<pre" in found._repr_html_()
