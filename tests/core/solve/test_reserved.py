"""`solve(allocator=)`: bytes reserved against a twin, their bound against all orders, files, limits, bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest
import schedopt
from models.small_graphs import sketch
from naive.caching_allocator import reserved_by
from naive.exhaustive import all_orders
from naive.graphs import plain_of, random_graph, random_order
from schedopt import FormatError, ScheduleError, UsageError
from schedopt.core.base.arrays import frozen
from schedopt.core.model.allocators import MIB, Allocator
from schedopt.core.model.reserved import Requests, verify_reserved
from schedopt.core.programs.pipeline import check_limit
from schedopt.core.search.method_spec import parse_method
from schedopt.core.solve.placed import solve_and_place


def drawn(seed, ops):
    """A graph with blocks of both pools, and the same as sets and lists."""
    rng = np.random.default_rng([11, seed])
    graph = random_graph(rng, ops)[0]
    scale = int(rng.choice([60_000, 200_000, 900_000]))
    sizes = {
        name: frozen(getattr(graph, name) * scale, np.int64) for name in ("tensor_size", "workspace", "persistent")
    }
    graph = replace(graph, **sizes)
    return graph, plain_of(graph), rng


def least_reserved(graph, plain, allocator):
    """The least of all orders and of opening blocks in steps of 2 MiB; and the least without."""
    requests = Requests(graph, allocator)
    most = int(graph.tensor_size.sum() + graph.persistent.sum() + graph.workspace.sum())
    runs = [requests.events(np.array(order)) for order in all_orders(plain)]
    without = min(requests.reserved(run) for run in runs)
    blocks = range(2 * MIB, most + 12 * MIB, 2 * MIB)
    return min([without, *(requests.reserved(run, block) for run in runs for block in blocks)]), without


@pytest.mark.parametrize(
    "options", ["cublas_workspace:default", "expandable_segments:True", "roundup_power2_divisions:4"]
)
def test_what_is_reserved_is_what_the_twin_reserves(options):
    allocator = Allocator.of_options(options)
    for seed in range(12):
        graph, plain, rng = drawn(seed, 10)
        order, block, is_before = random_order(rng, plain), int(rng.integers(0, 9)) * MIB, bool(rng.random() < 0.5)
        requests = Requests(graph, allocator)
        found = requests.reserved(requests.events(np.array(order)), block, is_before)
        ways = [
            reserved_by(plain, order, allocator, block, is_before, runs=6, is_downwards=way) for way in (True, False)
        ]
        assert found == max(ways)
        more = [
            reserved_by(plain, order, allocator, block, is_before, runs=4, is_downwards=way) for way in (True, False)
        ]
        assert found == max(more)  # two runs reserve what more do


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_order_and_no_opening_block_reserves_less_than_the_bound(seed):
    options = {5: "expandable_segments:True", 4: "cublas_workspace::600:1"}
    allocator = Allocator.of_options(options.get(seed, ""))
    graph, plain, _ = drawn(seed, 6)
    least, without = least_reserved(graph, plain, allocator)
    result = schedopt.solve(graph, allocator=str(allocator), evaluations=200)
    assert result.reserved.bound <= least <= result.reserved.peak <= without
    assert result.reserved.peak <= result.reserved_otherwise["reserved in the input order"]
    assert result.status == ("optimal" if result.reserved.is_optimal else "feasible")


def fragmented():
    """Three blocks of 12 MiB, freed, then one of 30: without an opening block none is large enough for it."""
    builder = schedopt.GraphBuilder("fragmented")
    parts = [builder.add_op(f"part{number}", outputs=[12 * MIB]) for number in range(3)]
    small = builder.add_op("small", inputs=[(part, 0) for part in parts], outputs=[MIB])
    large = builder.add_op("large", inputs=[(small, 0)], outputs=[30 * MIB])
    builder.add_op("end", inputs=[(large, 0)], outputs=[8])
    return builder.build()


def test_an_opening_block_is_found_and_a_file_says_so(tmp_path):
    result = schedopt.solve(fragmented(), allocator="cuda", evaluations=50)
    reserved = result.reserved
    assert result.reserved_otherwise["without the opening block"] == 68 * MIB
    assert (reserved.peak, reserved.bound, reserved.opening_block) == (38 * MIB, 38 * MIB, 36 * MIB)
    assert result.status == "optimal" and reserved.least_capacity == 38 * MIB
    assert not any("order was changed" in note for note in result.notes)
    assert any(f"torch.empty({36 * MIB}, " in note for note in result.notes)
    assert "opening block" in str(result) and "expandable_segments:True" in str(result)
    pages = "with cuda:large_segment_size_mb:12,expandable_segments:True"
    assert result.reserved_otherwise[pages] == 38 * MIB
    result.save(tmp_path / "plan.json")
    loaded = schedopt.read_schedule(tmp_path / "plan.json", fragmented())
    assert loaded.reserved == reserved
    loaded.verify()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bytes": 36 * MIB}, "claims that 37748736 bytes are reserved, but 39845888 are"),
        ({"opening_block": 0}, "but 71303168 are"),
        ({"bound": 40 * MIB}, "less than its bound of 41943040"),
        ({"least_capacity": 36 * MIB}, "does not run on a device of 37748736 bytes"),
        ({"allocator": "cuda:wrong:1"}, "unknown allocator option 'wrong'"),
        ({"retries": -1}, "its 'retries' must be a whole number"),
        ({"retries": 7}, "claims 7 retries a run, but has 0"),
        ({"least_capacity": 10**12}, "a least capacity of 1000000000000 bytes, above its reserved"),
    ],
)
def test_what_is_claimed_of_an_allocator_is_checked(tmp_path, changed, message):
    graph, path = fragmented(), tmp_path / "plan.json"
    document = schedopt.solve(graph, allocator="cuda", evaluations=50).document()
    document["reserved"] |= changed
    path.write_text(json.dumps(document))
    with pytest.raises((ScheduleError, FormatError), match=message):
        schedopt.read_schedule(path, graph).verify()


def test_options_by_which_each_run_reserves_more_are_refused():
    graph, options = sketch("a -> 4194304; b: a -> 8", "growing"), "cuda:max_split_size_mb:20"
    plain, allocator = plain_of(graph), Allocator.parse(options)
    ways = [reserved_by(plain, [0, 1], allocator, 0, True, runs=runs, is_downwards=False) for runs in (9, 10)]
    assert ways[1] - ways[0] == 20 * MIB
    with pytest.raises(UsageError, match="growing: with cuda:max_split_size_mb:20 each run reserves more than"):
        schedopt.solve(graph, allocator=options, evaluations=5)
    result = schedopt.solve(graph, allocator="cuda", evaluations=5)
    with pytest.raises(ScheduleError, match="each run reserves more than the one before"):
        verify_reserved(result.problem, result.schedule, replace(result.reserved, allocator=options, opening_block=0))


def test_a_limit_is_one_of_what_is_reserved(tmp_path):
    kept = schedopt.solve(fragmented(), allocator="cuda", memory_limit="38MiB", evaluations=50)
    assert kept.is_feasible and kept.status == "optimal"
    above = schedopt.solve(fragmented(), allocator="cuda", memory_limit="37MiB", evaluations=50)
    again = schedopt.solve(fragmented(), allocator="cuda", memory_limit="37MiB", evaluations=50, recompute=True)
    assert not above.is_feasible and above.status == "infeasible"
    for result in (above, again):
        with pytest.raises(ScheduleError, match="is not kept: no schedule reserves less than 38"):
            check_limit("fragmented", result)
    above.save(tmp_path / "above.json")
    schedopt.read_schedule(tmp_path / "above.json", fragmented()).verify()


def kept_for_later():
    """Four blocks of 20 MiB that are made in 1 us each and read at the end, beside one of 60."""
    builder = schedopt.GraphBuilder("kept")
    first = builder.add_op("first", outputs=[2 * MIB], runtime=1.0)
    parts = [builder.add_op(f"part{n}", inputs=[(first, 0)], outputs=[20 * MIB], runtime=1.0) for n in range(4)]
    small = [builder.add_op(f"small{n}", inputs=[(part, 0)], outputs=[8], runtime=1.0) for n, part in enumerate(parts)]
    large = builder.add_op("large", inputs=[(op, 0) for op in small], outputs=[60 * MIB], runtime=1.0)
    last = large
    for part in parts:
        last = builder.add_op(f"end{part}", inputs=[(last, 0), (part, 0)], outputs=[8], runtime=1.0)
    return builder.build()


@pytest.mark.slow
def test_a_limit_of_what_is_reserved_is_kept_by_running_ops_again(tmp_path):
    graph = kept_for_later()
    given = {"allocator": "cuda", "recompute": True, "memory_limit": "104MiB", "evaluations": 2000}
    result = schedopt.solve(graph, **given)
    assert result.is_feasible and result.reserved.peak <= 104 * MIB and result.runtime > graph.runtime.sum()
    result.save(tmp_path / "again.json")
    schedopt.read_schedule(tmp_path / "again.json", graph).verify()
    answer = schedopt.fit(graph, "104MiB", allocator="cuda", time_limit=10)
    assert [way.verdict for way in answer.ways] == ["no", "no", "yes"]


def test_fit_asks_by_what_is_reserved():
    verdicts = [schedopt.fit(fragmented(), f"{size}MiB", allocator="cuda", time_limit=1) for size in (68, 67, 38, 36)]
    assert [[way.verdict for way in answer.ways] for answer in verdicts] == [
        ["yes", "yes"],
        ["yes", "yes"],  # as cached segments are given back in the first run
        ["no", "yes"],
        ["no", "no", "no"],
    ]
    assert verdicts[1].sentence() == "It fits as it is: 44.0 MiB of 67.0 MiB."
    with pytest.raises(UsageError, match="leave devices= out"):
        schedopt.fit(fragmented(), "1GiB", allocator="cuda", devices=2)
    with pytest.raises(UsageError, match="allocator= is for one device and size; leave batch= out"):
        schedopt.fit(fragmented(), "1GiB", allocator="cuda", batch="n")


@pytest.mark.slow
@pytest.mark.parametrize("options", ["expandable_segments:True", "garbage_collection_threshold:0.6", ""])
def test_no_options_and_no_sizes_break_it(options):
    """Pages of 20 MiB that a capacity cuts, blocks of 700 KiB in one expandable segment, memory of a machine."""
    for seed in range(6):
        graph, plain, _ = drawn(seed + 30, 8)
        result = schedopt.solve(graph, allocator=f"cuda:{options}", evaluations=30)
        ways = [
            reserved_by(
                plain,
                result.schedule.op_order().tolist(),
                Allocator.of_options(options),
                result.reserved.opening_block,
                result.reserved.is_before_weights,
                runs=6,
                is_downwards=way,
            )
            for way in (True, False)
        ]
        assert max(ways) == result.reserved.peak >= result.reserved.bound


def test_methods_are_compared_by_what_is_reserved():
    """Also the order of a method that builds one, with an opening block; the live peak is beside it."""
    builder = schedopt.GraphBuilder("plain")
    first = builder.add_op("first", outputs=[5 * MIB])
    builder.add_op("second", inputs=[(first, 0)], outputs=[8])
    graphs, given = [fragmented(), builder.build()], {"allocator": "cuda", "evaluations": 20}
    comparison = schedopt.compare(graphs, ["bfs", "order-search"], **given)
    facts = [(cell.value, cell.reserved, cell.lower_bound) for cell in comparison.cells]
    alone = [schedopt.solve(graph, "bfs", allocator="cuda") for graph in graphs]
    assert facts[::2] == [(one.reserved.peak, one.reserved.peak, one.reserved.bound) for one in alone]
    assert comparison.cells[0].peak_memory == alone[0].peak_memory < alone[0].reserved.peak
    assert [summary.reserved for summary in comparison.summaries()] == [25 * MIB] * 2
    assert "memory reserved by cuda, 2 graphs" in str(comparison)
    assert "reserved" in str(comparison) and "opening block" not in str(comparison)
    assert comparison.document()["allocator"] == "cuda"
    with pytest.raises(UsageError, match="an allocator is one device's"):
        schedopt.compare(graphs, ["input"], allocator="cuda", devices=2)


def test_a_front_is_one_of_what_is_reserved_and_is_resumed(tmp_path):
    given = {"allocator": "cuda", "evaluations": 100, "points": 3, "resume": tmp_path / "front.jsonl"}
    front = schedopt.pareto(kept_for_later(), **given)
    assert [point.peak_memory for point in front.points] == [point.result.reserved.peak for point in front.points]
    assert all(point.peak_bound <= point.peak_memory for point in front.points) and len(front.points) > 1
    assert front.points[0].time == 14 and front.points[-1].added_runs
    assert "memory reserved" in str(front) and front.document()["allocator"] == "cuda"
    again = schedopt.pareto(kept_for_later(), **given)
    assert [point.result.reserved for point in again.points] == [point.result.reserved for point in front.points]
    assert str(again.points[0].result) == str(front.points[0].result)
    with pytest.raises(UsageError, match="an allocator is one device's"):
        schedopt.pareto(kept_for_later(), allocator="cuda", devices=2)
    lines = given["resume"].read_text().replace('"bytes": ', '"bytes": 1')
    given["resume"].write_text(lines)
    with pytest.raises(FormatError, match="line 1 is not of a front, or damaged"):
        schedopt.pareto(kept_for_later(), **given)


def test_memory_of_a_machine_of_one_device_is_one_of_what_is_reserved():
    machine = schedopt.Machine((schedopt.Device("gpu", memory=37 * MIB),))
    assert schedopt.solve(fragmented(), allocator="cuda", machine=machine, evaluations=20).status == "infeasible"


def test_runs_again_are_priced_and_a_method_that_builds_one_order_keeps_it():
    graph = fragmented()
    again = schedopt.solve(graph, allocator="cuda", recompute=True, max_overhead="10%", evaluations=20)
    assert again.reserved.peak <= 38 * MIB
    kept = schedopt.solve(graph, "bfs", allocator="cuda")
    assert kept.order == schedopt.solve(graph, "bfs").order and kept.reserved.peak == 38 * MIB


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"allocator": "cpu"}, "unknown allocator 'cpu'"),
        ({"allocator": 3}, "allocator= is written as 'cuda'"),
        ({"allocator": "cuda", "devices": 2}, "an allocator is one device's"),
        ({"allocator": "cuda", "addresses": True}, "leave addresses=True out"),
    ],
)
def test_bad_input_is_one_sentence(given, message):
    with pytest.raises(UsageError, match=message):
        schedopt.solve(fragmented(), **given)


@pytest.mark.parametrize(
    ("weights", "limit", "status", "peak"),
    [(6, 8, "infeasible", 22), (6, 12, "limit-not-met", 22), (6, 22, "optimal", 22), (0, 6, "limit-not-met", 12)],
)
def test_a_limit_tightened_below_the_weights_is_no_error(weights, limit, status, peak):
    """Three tensors of a segment of 20 MiB, with weights in place: less live bytes reserve no less."""
    graph = sketch(f"a -> 1258291 keep={weights * MIB}; b: a -> 1258291; c: b -> 1258291; d: c a -> 64", "weights")
    problem = schedopt.Problem(graph, recompute=True, memory_limit=limit * MIB)
    result = solve_and_place(problem, parse_method("auto"), None, Allocator(), places=(False,), evaluations=50)
    assert (result.status, result.reserved.peak) == (status, peak * MIB)
