"""The cost model: golden examples of both papers, and three independent implementations that must agree."""

import naive
import numpy as np
import pytest
from models.seeds import seeds
from models.small_graphs import sketch
from schedopt import GraphBuilder, Problem, Schedule, ScheduleError, Search
from schedopt.core.model.simulator import needed_receivers, simulate
from schedopt.core.model.verifier import verify
from schedopt.core.solvers.placements.chromosomes import Chromosomes


def prices(problem, schedule):
    """Simulate and verify; both must say the same."""
    simulation = simulate(problem, schedule)
    totals = verify(problem, schedule, enforce_limit=False)
    assert simulation.peak_per_device.tolist() == totals.peak_per_device
    assert simulation.runtime == pytest.approx(totals.runtime, rel=1e-9)
    assert simulation.peak == totals.peak == max(totals.peak_per_device)
    return simulation


def test_regal_figure_9():
    """REGAL figure 9 and its text (A.5): the chromosome, op by op and tensor by tensor.

    Given: three nodes, tensors A, B, C, two devices, every gene of the table; node 1 makes A and C, node 2
    reads both; nodes 1 and 3 are on device 1 (ours: 0), node 2 on device 2 (ours: 1); the order is 1, 2, 3; C is
    sent before A.

    Assumed, since the picture is not readable: B goes from node 2 to node 3, and all bytes and microseconds. The
    table alone would put node 3 on device 2 (0.9 < 1.0); the text has it on device 1, where the op with the
    largest memory always is (A.2), so node 3 is made that op.
    """
    graph = sketch("1 -> 4 6 us=3; 2: 1 1.1 -> 2 us=5; 3: 2 -> us=7 work=20", "figure 9")
    problem = Problem(graph, devices=2, bandwidth=1e6, latency=0.5)
    assert problem.fixed_op == 2

    affinities = [0.7, 0.3, 0.4, 0.45, 0.9, 1.0]
    priorities = [0.1, 0.9, 0.5]
    a, b, c = [0.0, 0.1], [0.16, 0.2], [0.25, 0.3]
    genes = np.array([*affinities, *priorities, *a, *c, *b], np.float32)
    schedule = Chromosomes(Search(problem)).decode(genes)
    steps = [("1", 0), ("1:1", 1), ("1:0", 1), ("2", 1), ("2:0", 0), ("3", 0)]
    names = [graph.op_names[i] if i >= 0 else graph.tensor_name(~i) for i in schedule.items.tolist()]
    assert list(zip(names, schedule.targets.tolist(), strict=True)) == steps
    assert schedule.sources.tolist() == [0, 0, 0, 1, 1, 0]

    simulation = prices(problem, schedule)
    # A + C; C; A + C; A + C + B; B; B + workspace.
    assert simulation.step_memory.tolist() == [10, 6, 10, 12, 2, 22]
    assert simulation.peak_per_device.tolist() == [22, 12]
    # 3; + 0.5 + 6; + 0.5 + 4; + 5; + 0.5 + 2; + 7.
    assert simulation.step_end.tolist() == [3.0, 9.5, 14.0, 19.0, 21.5, 28.5]


def test_regal_figure_10():
    """REGAL figure 10 (A.9): which tensors are in memory at each step, with op 3 alone on device 2.

    Given: the placement ("op 3 is assigned to device 2 while all others are assigned to device 1") and the
    rules of A.4. Assumed, since the picture is not readable: five ops, their tensors, and the order of steps:
    1 -> a, b; 2: a -> c; 3: b -> d; 4: c, d -> e; 5: a, e -> f.
    """
    graph = sketch("1 -> 2 3 us=2; 2: 1 -> 4 us=3; 3: 1.1 -> 5 us=10; 4: 2 3 -> 1 us=1; 5: 1 4 -> 7 us=1", "figure 10")
    b, d = 1, 3
    schedule = Schedule.from_steps([0, ~b, 1, 2, ~d, 3, 4], [0, 0, 0, 1, 1, 0, 0], [0, 1, 0, 1, 0, 0, 0])
    simulation = prices(Problem(graph, devices=2), schedule)
    assert simulation.step_memory.tolist() == [
        5,  # device 1: a b
        3,  # device 2: b
        6,  # device 1: a c
        8,  # device 2: b d
        11,  # device 1: a c d
        12,  # device 1: a c d e
        10,  # device 1: a e f
    ]
    assert simulation.peak_per_device.tolist() == [12, 8]
    assert simulation.step_end.tolist() == [2, 2, 5, 12, 12, 13, 14]
    assert simulation.runtime == 14


@pytest.mark.parametrize(
    ("order", "memory"),
    [
        # By hand, M_t = I_{t-1} + m + p: op 3 at t = 3 finds outputs 1 and 2 (2 + 3) and adds 4 + 5.
        ([0, 1, 2, 3, 4], [3, 5, 14, 10, 6]),
        # Op 3 at t = 2 finds output 1 alone; output 5, which nobody reads, is gone at once.
        ([0, 2, 4, 1, 3], [3, 11, 8, 9, 10]),
    ],
)
def test_topoformer_equations_1_to_3_and_15(order, memory):
    """Edges 1-2, 1-3, 2-4, 3-4, 3-5 with output costs m and parameter costs p."""
    edges = {0: [], 1: [0], 2: [0], 3: [1, 2], 4: [2]}
    builder = GraphBuilder("topoformer")
    for op, (m, p) in enumerate(zip([2, 3, 4, 1, 2], [1, 0, 5, 2, 0], strict=True)):
        builder.add_op(str(op + 1), inputs=[(source, 0) for source in edges[op]], outputs=[m], workspace=p)
    simulation = prices(Problem(builder.build()), Schedule.single_device(np.array(order)))
    assert simulation.step_memory.tolist() == memory
    assert simulation.peak == max(memory)


def test_a_transferred_view_starts_a_buffer_of_its_own_size():
    """The view (30 of 100 bytes) goes to device 1 alone; a view of it there shares those 30 bytes."""
    graph = sketch("a -> 100; v: a -> 30@0; w: v -> 20@0; r: w -> 5", "sent view")
    schedule = Schedule.from_steps([0, 1, ~1, 2, 3], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
    simulation = prices(Problem(graph, devices=2), schedule)
    assert simulation.step_memory.tolist() == [100, 100, 30, 30, 35]


def test_a_final_tensor_stays_on_its_producers_device_only():
    """The final output is read on both devices; the copy goes with its reader, the original never."""
    graph = sketch("a -> 10f; b: a -> 1; c: a -> 1; d: b -> 2; e: c -> 2", "final")
    schedule = Schedule.from_steps([0, ~0, 1, 2, 3, 4], [0, 0, 0, 1, 0, 1], [0, 1, 0, 1, 0, 1])
    simulation = prices(Problem(graph, devices=2), schedule)
    assert simulation.step_memory.tolist() == [10, 10, 11, 11, 13, 3]


def test_a_final_view_keeps_its_whole_buffer():
    graph = sketch("a -> 50; v: a -> 1f@0; z -> 3", "final view")
    simulation = prices(Problem(graph), Schedule.single_device(np.arange(3)))
    assert simulation.step_memory.tolist() == [50, 50, 53]


@pytest.mark.parametrize("devices", [1, 2, 3, 64])
def test_a_placement_needs_the_transfers_of_the_plain_twin(devices):
    for seed in range(20):
        rng = np.random.default_rng([seed, devices])
        graph, plain = naive.random_graph(rng, int(rng.integers(1, 40)))
        placement = rng.integers(0, devices, graph.num_ops)
        wanted = np.zeros((graph.num_tensors, devices), bool)
        for tensor, device in naive.needed_transfers(plain, placement.tolist()):
            wanted[plain.index[tensor], device] = True
        assert np.array_equal(needed_receivers(graph, placement, devices), wanted)


def test_all_control_dependents_wait_on_one_tensor_sent_once_per_device():
    graph = sketch("a -> 8 us=1; b: !a !a -> us=1; c: !a !a -> us=1; d: !a !a -> us=1; e: !a !a -> us=1", "control")
    assert graph.num_tensors == 2
    placement = np.array([0, 1, 1, 1, 0], np.int32)
    assert needed_receivers(graph, placement, 2).tolist() == [[False, False], [False, True]]
    schedule = Schedule.from_steps([0, ~1, 1, 2, 3, 4], [0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0])
    simulation = prices(Problem(graph, devices=2, latency=5.0, bandwidth=1.0), schedule)
    assert simulation.step_end.tolist() == [1, 6, 7, 8, 9, 7]  # latency, and no bytes


def test_a_synchronous_transfer_waits_for_both_clocks():
    graph = sketch("a -> 1000 us=2; slow -> 1 us=50; b: a -> us=1; after -> us=1", "clocks")
    schedule = Schedule.from_steps([0, 1, ~0, 2, 3], [0, 1, 0, 1, 0], [0, 1, 1, 1, 0])
    simulation = prices(Problem(graph, devices=2, bandwidth=1e9, latency=0.25), schedule)
    assert simulation.step_end.tolist() == [2.0, 50.0, 51.25, 52.25, 52.25]


@pytest.mark.parametrize("seed", seeds(100, quick=4))
def test_simulator_verifier_and_twin_agree(seed):
    """Random placements and orders on 1 to 4 devices, with every feature of graph and problem."""
    rng = np.random.default_rng(seed)
    graph, plain = naive.random_graph(rng, int(rng.integers(1, 16)))
    devices = 1 + seed % 4
    placement, steps = naive.random_steps(rng, plain, devices)
    bandwidth = None if seed % 3 == 0 else float(rng.integers(1, 100)) * 1e5
    latency = float(rng.choice([0.0, 0.5, 3.0]))
    expected = naive.replay(plain, placement, steps, devices, bandwidth=bandwidth or np.inf, latency=latency)
    limit = max(1, max(expected.peaks) + int(rng.integers(-2, 3)))
    problem = Problem(graph, "memory", devices, limit, bandwidth, latency)
    schedule = Schedule.from_steps(*naive.schedule_of(plain, placement, steps))

    simulation = prices(problem, schedule)
    assert simulation.peak_per_device.tolist() == expected.peaks
    assert simulation.clock_per_device.tolist() == pytest.approx(expected.clocks, rel=1e-9)
    assert simulation.step_memory.tolist() == expected.step_memory
    assert simulation.step_end.tolist() == pytest.approx(expected.step_end, rel=1e-9)
    assert max(simulation.step_memory) <= simulation.peak
    assert problem.is_feasible([simulation.peak]) == (max(expected.peaks) <= limit)
    if problem.is_feasible([simulation.peak]):
        verify(problem, schedule)
    else:
        with pytest.raises(ScheduleError, match="over the limit"):
            verify(problem, schedule)


@pytest.mark.parametrize("seed", range(4))
def test_agreement_on_sixty_four_devices(seed):
    rng = np.random.default_rng([64, seed])
    graph, plain = naive.random_graph(rng, 45, edges=2.5)
    placement, steps = naive.random_steps(rng, plain, 64)
    assert len(steps) > 80
    expected = naive.replay(plain, placement, steps, 64, bandwidth=3e6, latency=0.125)
    problem = Problem(graph, "runtime", 64, None, 3e6, 0.125)
    simulation = prices(problem, Schedule.from_steps(*naive.schedule_of(plain, placement, steps)))
    assert simulation.peak_per_device.tolist() == expected.peaks
    assert simulation.clock_per_device.tolist() == pytest.approx(expected.clocks, rel=1e-9)
