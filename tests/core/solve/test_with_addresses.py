"""`solve(addresses=True)`: arenas, what they claim, and that the order may change for them."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import schedopt
from schedopt import FormatError, ScheduleError, UsageError
from schedopt.core.addresses.placing import place_schedule
from schedopt.core.solve import placed
from schedopt.core.solve.placed import choose

GRAPHS = Path(__file__).parents[3] / "examples" / "graphs"


def random_graph(seed, ops=40):
    rng = np.random.default_rng([41, seed])
    builder = schedopt.GraphBuilder(f"random{seed}")
    for op in range(ops):
        producers = rng.choice(op, min(op, int(rng.integers(0, 3))), replace=False).tolist() if op else []
        sizes = [int(rng.integers(1, 1000))]
        builder.add_op(f"op{op}", inputs=[(p, 0) for p in producers], outputs=sizes, workspace=int(rng.integers(0, 99)))
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_arena_is_verified_and_no_larger_than_of_the_order_alone(seed):
    graph = random_graph(seed)
    result = schedopt.solve(graph, addresses=True, align=1, time_limit=1.0)
    found = schedopt.solve(graph, evaluations=200)
    (arena,) = result.addresses.arenas
    peak = result.peak_memory - int(graph.persistent.sum())
    assert arena.bound == peak
    assert arena.size >= arena.bound >= result.lower_bound - int(graph.persistent.sum())
    assert arena.is_optimal == (arena.size == peak)
    assert (result.status == "optimal") == (result.peak_memory == result.lower_bound)
    alone = place_schedule(found.problem, found.schedule, 1, 0.0)
    assert result.status != "optimal" or arena.size <= alone.arenas[0].size
    schedopt.verify(graph, result.schedule)


@pytest.mark.slow
def test_a_smoother_order_packs_where_the_found_one_does_not():
    """The order found by a first beam leaves large tensors in the way; with time for one round another is taken."""
    for seed in range(40):
        graph = random_graph(seed, 60)
        found = schedopt.solve(graph, evaluations=50)
        before = place_schedule(found.problem, found.schedule, 1, 0.0).arenas[0]
        if before.is_optimal:
            continue
        chosen = choose(found, 1, 2.0)
        assert chosen.addresses.arenas[0].size <= before.size
        assert chosen.peak_memory <= before.size + int(graph.persistent.sum())
        if chosen.schedule is not found.schedule:
            assert any("the order was changed for a smaller arena" in note for note in chosen.notes)
            assert sorted(chosen.order) == sorted(found.order)
            return
    raise AssertionError("no order was changed")


@pytest.mark.parametrize(("to_place", "searched"), [(0.1, 7.0), (6.0, 4.0), (60.0, 3.0)])
def test_the_search_leaves_the_time_that_addresses_take(monkeypatch, diamond, to_place, searched):
    """From 70% of it to 30%, once its kernels are compiled."""
    given = []
    monkeypatch.setattr(placed, "seconds_for", lambda numbers: to_place)
    monkeypatch.setattr(placed, "warm_up", lambda *_: given.append("compiled"))
    monkeypatch.setattr(placed, "solve", lambda *_, time_limit, **budget: given.append(time_limit) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        schedopt.solve(diamond, addresses=True, time_limit=10.0)
    assert given == ["compiled", pytest.approx(searched)]


def test_no_other_order_is_tried_where_first_addresses_took_all_time(monkeypatch, diamond):
    result, shares = schedopt.solve(diamond, evaluations=10), []
    monkeypatch.setattr(placed.Placer, "improve", lambda placer, seconds, rng: shares.append(seconds))
    clock = itertools.count()
    monkeypatch.setattr(placed.time, "monotonic", lambda: float(next(clock)))
    choose(result, 1, 0.5)
    assert shares == [0.0]


@pytest.mark.slow
def test_several_devices_and_recomputation_have_addresses():
    graph = schedopt.read_graph(GRAPHS / "unet.pb.gz")
    two = schedopt.solve(graph, task="runtime", devices=2, evaluations=50, addresses=True)
    assert len(two.addresses.arenas) == len(two.document()["arenas"]) == 2
    again = schedopt.solve(graph, recompute=True, memory_limit="97%", addresses=True, time_limit=2.0)
    assert len(again.addresses.made) == len(again.schedule)
    for result in (two, again):
        assert "arena" in result.summary()


def test_the_file_holds_them_and_is_checked(tmp_path, diamond):
    result = schedopt.solve(diamond, addresses=True, align="1KiB", evaluations=50)
    path = tmp_path / "plan.json"
    result.save(path)
    loaded = schedopt.read_schedule(path, diamond)
    assert loaded.addresses.made == result.addresses.made
    assert loaded.addresses.arenas == result.addresses.arenas
    assert loaded.addresses.alignment == 1024
    assert schedopt.verify(diamond, path).peak == result.peak_memory
    document = json.loads(path.read_text())
    document["steps"][1]["offsets"] = dict.fromkeys(document["steps"][1]["offsets"], 0)
    document["steps"][0]["offsets"] = dict.fromkeys(document["steps"][0]["offsets"], 0)
    path.write_text(json.dumps(document))
    with pytest.raises(ScheduleError, match="overlaps"):
        schedopt.verify(diamond, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("arenas"), "the field 'arenas' must have an object per device"),
        (lambda d: d.pop("alignment"), "the field 'alignment' must be a whole number from 1 to .*, and is missing"),
        (lambda d: d.update(alignment=0), "alignment' must be a whole number from 1 to .*, and is not 0"),
        (lambda d: d.update(arenas=[3]), "the field 'arenas' must have an object per device"),
        (lambda d: d["arenas"][0].pop("bytes"), "arena of device 0: its 'bytes' .* is missing"),
        (lambda d: d["arenas"][0].update(bytes=10**6), "status is optimal if its bytes equal the bound"),
        (lambda d: d["arenas"][0].update(status="good"), "status is optimal if .* not 'good'"),
        (lambda d: d["steps"][0].pop("offsets"), "step 1 must have an offset per result: 'source:0'"),
        (lambda d: d["steps"][0].update(offsets={"source:0": -1}), "step 1: an offset must be a whole number"),
        (lambda d: d["steps"][0].update(offsets={"source:0": True}), "step 1: an offset .* is not True"),
        (lambda d: d["steps"][0].update(offsets=[1]), "step 1 must have an offset per result"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, diamond, change, message):
    document = schedopt.solve(diamond, addresses=True, evaluations=50).document()
    change(document)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=message):
        schedopt.read_schedule(path, diamond)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"align": 64}, "align= is for addresses=True"),
        ({"addresses": True, "align": 0}, "align= must be from 1 to 2147483648, not 0"),
        ({"addresses": True, "align": "2 apples"}, "unknown unit"),
        ({"addresses": 1}, "addresses= is true or false, not 1"),
    ],
)
def test_bad_options_are_refused(diamond, options, message):
    with pytest.raises(UsageError, match=message):
        schedopt.solve(diamond, **options)
