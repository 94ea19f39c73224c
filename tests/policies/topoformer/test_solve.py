"""The method `topoformer`: its decoders against all orders, its budget, its weights, and when it cannot be used."""

import threading

import naive
import numpy as np
import pytest
from models.networks import TINY, write_weights
from schedopt import Problem, UsageError
from schedopt.core.model.verifier import verify
from schedopt.core.search.method_spec import parse_method
from schedopt.core.search.search import Watcher
from schedopt.core.solve.solve import solve
from schedopt.policies.networks import shipped
from schedopt.policies.topoformer import solve as topoformer
from schedopt.policies.topoformer.network import NetworkParameters
from schedopt.policies.topoformer.solve import Parameters

pytestmark = pytest.mark.usefixtures("tiny_shipped")


def graph_of(seed, ops=12):
    return naive.random_graph(np.random.default_rng([180, seed]), ops)


def run(graph, text="topoformer", **options):
    """Solve for the least peak on one device; the result, whose schedule is verified."""
    result = solve(Problem(graph, *options.pop("problem", ())), text, **options)
    verify(result.problem, result.schedule, enforce_limit=False)
    return result


def peaks(decode, width, count=8, ops=40, seed=0, passes=0):
    text = f"topoformer:decode={decode}:width={width}:passes={passes}"
    return np.array([run(graph_of(at, ops)[0], text, seed=seed).value for at in range(count)])


@pytest.mark.parametrize("seed", range(4))
def test_wide_enough_decoding_finds_the_best_of_all_orders(seed, tmp_path):
    """A beam that no state is cut from is exact; so are many draws of priorities that are nearly equal."""
    graph, plain = graph_of(seed, 7)
    best = run(graph, "depth-first-dp").value
    assert best == min(max(naive.replay(plain, [0] * 7, order, 1).peaks) for order in naive.all_orders(plain))
    assert run(graph, "topoformer:decode=beam:width=200").value == best
    blunt = write_weights(tmp_path / "blunt.safetensors", alpha=0.01)
    assert run(graph, f"topoformer:decode=sample:width=2000:weights={blunt}").value == best


@pytest.mark.slow
def test_only_the_papers_decoders_are_tightened_and_only_for_the_peak_on_one_device():
    for decode in topoformer.Parameters.decoders:
        plain, tight = (peaks(decode, 4, count=3, passes=passes) for passes in (0, 200))
        assert (tight <= plain).all()
        assert (tight.sum() < plain.sum()) == (decode != "two-way")
    greedy = peaks("greedy", 4, count=3, passes=200)
    assert (peaks("beam", 4, count=3, passes=200) <= greedy).all(), "the beam stays below the greedy order"
    graph, _ = graph_of(3, 40)
    for problem in (("runtime", 1), ("memory", 2)):
        plain, tight = (run(graph, f"topoformer:decode=beam:passes={p}", problem=problem) for p in (0, 200))
        assert plain.schedule.items.tolist() == tight.schedule.items.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decode", "budget", "plain", "tight"),
    [
        ("greedy", 3, 1, 3),
        ("sample", 9, 4, 9),
        ("sample", 3, 3, 3),
        ("beam", 9, 4, 9),
        ("beam", 5, 4, 5),
        ("beam", 1, 1, 1),
        ("two-way", 1, 1, 1),
        ("two-way", 9, 8, 8),
    ],
)
def test_evaluations(decode, budget, plain, tight):
    for passes, expected in ((0, plain), (200, tight)):
        text = f"topoformer:decode={decode}:width=4:passes={passes}"
        assert run(graph_of(6, 40)[0], text, evaluations=budget).evaluations == expected


@pytest.mark.slow
@pytest.mark.parametrize("decode", topoformer.Parameters.decoders)
@pytest.mark.parametrize(("task", "devices"), [("memory", 2), ("memory", 4), ("runtime", 2), ("runtime", 4)])
def test_several_devices_are_used(decode, task, devices):
    graph, _ = graph_of(7, 40)
    text = f"topoformer:decode={decode}"
    result = run(graph, text, problem=(task, devices), evaluations=400)
    alone = run(graph, text)
    assert 16 * (decode != "greedy") < result.evaluations <= 400 + 1e-9
    if task == "memory":
        assert result.value < alone.value
    else:
        assert result.value < graph.runtime.sum()
    assert result.found_by == "topoformer"


ENCODERS = ["topoformer-edges", "mlp", "transformer", "edge-transformer", "gat", "gat-bidirectional"]
SHAPES = [*({"encoder": e} for e in ENCODERS), {"decoder": "autoregressive"}, {"eigenvectors": 3}, {"tied": True}]
DECODERS = topoformer.Parameters.decoders


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decode", "shape"),
    [*((DECODERS[at % 4], shape) for at, shape in enumerate(SHAPES)), ("sample", SHAPES[6]), ("two-way", SHAPES[6])],
    ids=str,
)
def test_networks_of_every_kind_can_be_used(decode, shape, tmp_path):
    file = write_weights(tmp_path / "other.safetensors", **shape)
    if (decode, shape.get("decoder")) == ("two-way", "autoregressive"):
        with pytest.raises(UsageError, match=r"two-way needs a priority per op, .*other.*; decode by beam"):
            parse_method(f"topoformer:weights={file}")
        return
    for ops in (1, 2, 15):
        result = run(graph_of(ops, ops)[0], f"topoformer:decode={decode}:width=3:weights={file}")
        assert (result.found_by, result.notes, result.is_repeatable) == ("topoformer", (), True)


def test_a_file_is_taken_by_its_whole_name(tmp_path):
    """Only the names of shipped weights go without their suffix."""
    files = [write_weights(tmp_path / name, seed=seed) for seed, name in enumerate(("mine", "mine.safetensors"))]
    first, second = (Parameters(weights=str(file)).identity()["weights"] for file in files)
    assert first != second
    assert shipped.weights_file("topoformer-layered").parent == shipped.WEIGHTS


def test_without_shipped_weights_the_remedy_is_named(tmp_path, monkeypatch):
    file = write_weights(tmp_path / "mine.safetensors")
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path / "none")
    with pytest.raises(UsageError, match="schedopt train topoformer makes some, --weights FILE"):
        solve(Problem(graph_of(1)[0]), "topoformer")
    assert run(graph_of(1)[0], f"topoformer:weights={file}").found_by == "topoformer"


def test_the_identity_is_that_of_the_weights_not_of_their_name(tmp_path):
    files = [write_weights(tmp_path / f"{at}.safetensors", seed=at // 2) for at in range(3)]
    same, again, other = (Parameters(weights=str(file)).identity() for file in files)
    assert same == again != other
    assert Parameters().identity()["weights"] == same["weights"]  # the tiny shipped ones have seed 0 too
    assert Parameters(width=3).identity() != Parameters().identity()


@pytest.mark.parametrize("problem", [("memory", 1), ("memory", 2), ("runtime", 2)])
def test_a_graph_too_large_is_ordered_by_the_next_best_methods(monkeypatch, problem):
    monkeypatch.setattr(topoformer, "MOST_OPS", 29)
    graph, _ = graph_of(1, 30)
    result = run(graph, problem=problem)
    (note,) = result.notes
    assert note.startswith(f"{graph.name}: 30 ops are too many for topoformer, which takes 29; ")
    assert note.endswith("lpmf and dfs-postorder")
    assert result.found_by in topoformer.NEXT_BEST
    assert result.is_repeatable
    values = [run(graph, name).value for name in topoformer.NEXT_BEST]
    if problem == ("memory", 1):
        assert (result.value, result.evaluations) == (min(values), 2)
        assert run(graph, evaluations=1).value == values[0]
    assert run(graph_of(1, 29)[0]).notes == ()


def test_too_little_time_for_the_network_is_noticed_before(monkeypatch):
    monkeypatch.setattr(topoformer, "PAIR", 1e8)
    graph, _ = graph_of(1, 30)
    result = run(graph, time_limit=20)
    assert "had no time to finish; this is the better order of" in result.notes[0]
    assert (result.found_by in topoformer.NEXT_BEST, result.is_repeatable) == (True, False)
    assert run(graph).notes == ()
    heads = {"mlp": 0, "gat": 0, "transformer": 1, "edge-transformer": 1, "topoformer-edges": 0, "topoformer": 3}
    for encoder, dense in heads.items():
        assert topoformer._work(NetworkParameters(encoder=encoder, **TINY), 10) == dense * 4e10


@pytest.mark.parametrize("decoder", ["priorities", "autoregressive"])
def test_an_interrupt_within_the_network_is_heard(decoder, tmp_path):
    file = write_weights(tmp_path / "weights.safetensors", decoder=decoder)
    graph, _ = graph_of(1, 30)
    calls = []
    text = f"topoformer:decode=beam:passes=0:weights={file}"
    run(graph, text, watcher=Watcher(on_progress=calls.append))
    assert len(calls) > (30 if decoder == "autoregressive" else 5)
    for last in (2, 3, len(calls) - 1):
        interrupt, seen = threading.Event(), []

        def watch(search, last=last, seen=seen, interrupt=interrupt):
            seen.append(search)
            if len(seen) == last:
                interrupt.set()

        result = run(graph, text, watcher=Watcher(interrupt, watch))
        assert (result.status, len(result.notes)) == ("interrupted", 1)
        assert result.found_by in topoformer.NEXT_BEST
        assert last <= len(seen) <= last + len(topoformer.NEXT_BEST), "each of these asks once"
