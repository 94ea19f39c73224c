"""Machine files: what they say, and one sentence with file and line for each way to be wrong."""

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import schedopt
from models.small_graphs import sketch
from naive.machines import random_machine
from schedopt import FormatError, read_machine
from schedopt.core.files.machine_yaml import machine_of, read_op_times
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.solvers.placements.first_fit_devices import filled_placements

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "machines").glob("*.yaml"))
BASE = """devices:
  - {name: gpu0, kind: gpu, memory: 16GiB, speed: 1.0}
  - {name: cpu0, kind: cpu, memory: 64GiB, speed: 0.1}
links:
  - {between: [gpu0, cpu0], bandwidth: 25GB/s, latency: 5us}
transfers: beside
"""


def two_ops():
    return sketch("a -> 1000 us=5; b: a -> 10 us=7", "g")


def solved(tmp_path, text, times=None):
    (tmp_path / "m.yaml").write_text(text)
    if times is not None:
        (tmp_path / "t.csv").write_text(times)
    given = {} if times is None else {"op_times": tmp_path / "t.csv"}
    return schedopt.solve(two_ops(), "heft", task="runtime", machine=tmp_path / "m.yaml", **given)


def test_a_file_says_devices_links_and_what_is_fixed(tmp_path):
    text = """devices:
  - {name: a, kind: big, memory: 1GiB}
  - {name: b, kind: big, memory: 2GiB, speed: 2}
  - {name: c, kind: small, memory: 512MiB, speed: 0}
default_link: {bandwidth: 1GB/s, latency: 7us}
links:
  - {between: [big, big], bandwidth: 10GB/s}
  - {from: a, to: small, bandwidth: 5GB/s, latency: 2us}
contention: false
pins: {"conv*": big}
together: [["x", "y*"]]
"""
    (tmp_path / "m.yaml").write_text(text)
    machine = read_machine(tmp_path / "m.yaml")
    assert [(d.name, d.kind, d.memory, d.speed) for d in machine.devices] == [
        ("a", "big", 2**30, 1.0),
        ("b", "big", 2**31, 2),
        ("c", "small", 2**29, 0),
    ]
    inf = math.inf
    assert machine.bandwidth == ((inf, 1e10, 5e9), (1e10, inf, 1e9), (1e9, 1e9, inf))
    assert machine.latency == ((0.0, 0.0, 2.0), (0.0, 0.0, 7.0), (7.0, 7.0, 0.0))
    assert (machine.transfers, machine.contention) == ("blocking", False)
    assert (machine.pins, machine.together) == ((("conv*", "big"),), (("x", "y*"),))


def test_a_device_without_memory_has_no_limit(tmp_path):
    (tmp_path / "m.yaml").write_text(BASE.replace("memory: 16GiB, ", ""))
    result = schedopt.solve(two_ops(), "heft", task="runtime", machine=tmp_path / "m.yaml")
    assert result.problem.memory_limits[0] is None and "gpu0" in str(result)


def test_without_a_default_devices_without_a_link_cannot_send(tmp_path):
    (tmp_path / "m.yaml").write_text(BASE.replace("between: [gpu0, cpu0]", "from: gpu0, to: cpu0"))
    machine = read_machine(tmp_path / "m.yaml")
    assert machine.has_link.tolist() == [[True, True], [False, True]]


def test_the_plain_values_of_a_machine_are_the_machine():
    rng = np.random.default_rng(1)
    for _ in range(50):
        machine = random_machine(rng, int(rng.integers(1, 5)), limits=True)
        assert machine_of(json.loads(json.dumps(machine.document())), lambda place: "here") == machine


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_shipped_machines_are_read_and_solved_on(path):
    machine = schedopt.read_machine(path)
    assert all(device.memory for device in machine.devices)
    result = schedopt.solve(two_ops(), "heft", task="runtime", machine=path)
    assert result.status in ("feasible", "optimal")


def test_op_times_are_by_kind(tmp_path):
    result = solved(tmp_path, BASE, "op,gpu,cpu\na,30us,2\nb,,4\n")
    assert (result.runtime, result.placement) == (6.0, {"a": 1, "b": 1})
    inline = solved(tmp_path, BASE + "op_times: {a: {gpu: 30us, cpu: 2}, b: {gpu: null, cpu: 4}}\n")
    assert (inline.runtime, inline.placement) == (6.0, {"a": 1, "b": 1})


def test_op_times_of_a_name_with_a_line_break(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'op,gpu\r\n"new\nline",3us\r\nnewline,4us\r\n')
    assert read_op_times(tmp_path / "t.csv") == {"new\nline": {"gpu": 3.0}, "newline": {"gpu": 4.0}}
    (tmp_path / "t.csv").write_text('op,gpu\n"new\nline",3us\nnewline,much\n')
    with pytest.raises(FormatError, match="line 4: time 'much'"):
        read_op_times(tmp_path / "t.csv")


def test_pins_from_the_graph_are_its_devices(tmp_path):
    graph = two_ops()
    (tmp_path / "m.yaml").write_text(BASE)
    text = 'node { name: "a" device: "cpu0" compute_cost: 5 output_info { size: 8 alias_input_port: -1 } }'
    (tmp_path / "g.pbtxt").write_text(text)
    given = {"task": "runtime", "machine": tmp_path / "m.yaml"}
    assert schedopt.solve(tmp_path / "g.pbtxt", "heft", **given).runtime == 5.0
    pinned = schedopt.solve(tmp_path / "g.pbtxt", "heft", pins="from-graph", **given)
    assert (pinned.runtime, pinned.placement) == (50.0, {"a": 1})
    with pytest.raises(schedopt.UsageError, match="finds no op with a device"):
        schedopt.solve(graph, "heft", pins="from-graph", **given)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (BASE.replace("name: gpu0, ", ""), 2, "the device 0 has no name"),
        (BASE.replace("16GiB", "0"), 2, "the memory of device 'gpu0' is from 1"),
        (BASE.replace("speed: 1.0", "speed: -1"), 2, "the speed of device 'gpu0' must be a number from 0 on, not -1"),
        (BASE.replace("kind: gpu", "color: red"), 2, "a device has no 'color'"),
        (BASE.replace("cpu0, kind", "gpu0, kind"), 3, "two devices have the name 'gpu0'"),
        (BASE.replace("25GB/s", "fast"), 5, "bandwidth 'fast' is not understood"),
        (BASE.replace("25GB/s", "0"), 5, "the bandwidth of a link must be more than 0"),
        (BASE.replace("[gpu0, cpu0]", "[gpu0, tpu]"), 5, "the machine has no device 'tpu'; it has gpu0, cpu0"),
        (BASE.replace("between: [gpu0, cpu0]", "from: gpu0"), 5, "a link is between"),
        (BASE.replace("beside", "sometimes"), 6, "transfers are blocking or beside, not 'sometimes'"),
        (BASE + "pins: {a: gpu7}\n", 7, "the machine has no device 'gpu7'"),
        (BASE + "pins: {z*: gpu0}\n", 7, "pin 'z\\*' matches no op"),
        (BASE + "pins: {a: gpu0, b: cpu0}\ntogether: [[a, b]]\n", 8, "contradict each other"),
        (BASE + "pins: {a: gpu0, b: cpu0}\ntogether:\n- [a]\n- [a, b]\n- [b]\n", 10, "but 'a' and 'b', each with"),
        (BASE.replace("16GiB", "1.5"), 2, "memory is a whole number of bytes, or has a unit, not 1.5"),
        (BASE + "pins: {a: gpu0, '[a]': cpu0}\n", 7, "op 'a' is pinned to 'cpu0', but also by 'a' to 'gpu0'"),
        (BASE.replace("speed: 0.1", "speed: 0") + "pins: {a: cpu0}\n", 7, "cannot run: speed 0, or no op time"),
        (BASE.replace("speed: 0.1", "speed: 0").replace("1.0", "0"), 1, "on no device: every device has speed 0"),
        (BASE + "op_times: {a: {gpu: true}}\n", 7, "takes True on kind .gpu.; it must be microseconds"),
        (BASE + "op_times: {a: 5}\n", 7, "op 'a' has a time per kind of device, not 5"),
        (BASE + "op_times: [a]\n", 7, "op_times has a member per op, not \\['a'\\]"),
        (BASE + "op_times: {a: {gpu: soon}}\n", 7, "time 'soon' is not understood"),
        (BASE + "op_times: {a: {npu: null}}\n", 7, "a time for kind 'npu', which no device has"),
        (BASE + "pins: [a]\n", 7, "a pin is a pattern of ops with the name or kind of a device, not \\('a',\\)"),
        (BASE + "transfers: blocking\n", 7, "is not YAML: 'transfers' is there twice"),
        (BASE + "pins:\n  a: gpu0\n  a: cpu0\n", 9, "is not YAML: 'a' is there twice"),
        ("devices:\n  - {name: a, memory: 1:30}\n", 2, "is not YAML: 1:30 would be a number to base 60"),
        (BASE + "pins: {a: gpu0\n", 8, "is not YAML: expected ',' or '}'"),
        (BASE + "together: [[]]\n", 7, "a group is a list of patterns of ops, not \\[\\]"),
        (BASE + "together: [[a], [z]]\n", 7, "'z' of together matches no op"),
        ("- 1\n", 1, "a machine has members such as devices"),
        ("", 1, "a machine has members such as devices"),
        ("devices:\n" + "".join(f"  - {{name: d{n}, memory: 1}}\n" for n in range(65)), 1, "from 1 to 64 .*not 65"),
    ],
)
def test_each_way_to_be_wrong_names_file_and_line(tmp_path, text, line, reason):
    with pytest.raises(schedopt.SchedoptError, match=f"{re.escape(str(tmp_path))}/m.yaml, line {line}: .*{reason}"):
        solved(tmp_path, text)


def five_ops():
    return sketch("; ".join(f"{name} -> 8 us=2" for name in "abcde"), "five")


def test_the_group_that_closes_a_contradiction_is_named(tmp_path):
    text = BASE + 'pins: {a: gpu0, d: cpu0}\ntogether:\n- [d, e]\n- [a, b]\n- [b, c]\n- ["c", "[e]"]\n'
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(schedopt.UsageError, match=r"m.yaml, line 12: five: this group, joined .* 'c' and 'e', each"):
        schedopt.solve(five_ops(), "heft", task="runtime", machine=tmp_path / "m.yaml")
    pair = (schedopt.Device("gpu0"), schedopt.Device("cpu0"))
    for wrong in ([()], ["ab"]):
        with pytest.raises(schedopt.UsageError, match="a group of a machine's together is a list of patterns"):
            schedopt.Machine(pair, together=wrong)


def test_a_pin_away_from_the_home_of_what_is_written_is_named(tmp_path):
    weights = (Resident("w", "parameter", 100, 0, (0, 1), (1,)),)
    graph = sketch("read -> 8 us=1 keep=100; update: read -> 8 us=1", "step", Annotations(residents=weights))
    (tmp_path / "m.yaml").write_text(BASE + "pins:\n  read: gpu0\n  w: gpu0\n  update: cpu0\n")
    with pytest.raises(schedopt.UsageError, match=r"line 9: step: ops that write 'w' in .* 'update' and 'w'"):
        schedopt.solve(graph, "heft", task="runtime", machine=tmp_path / "m.yaml")


def test_a_speed_that_yaml_takes_for_a_text_is_a_number(tmp_path):
    (tmp_path / "m.yaml").write_text(BASE.replace("speed: 0.1", "speed: 1e-1"))
    assert read_machine(tmp_path / "m.yaml").devices[1].speed == 0.1


@pytest.mark.filterwarnings("error")
def test_nothing_is_said_of_links_that_are_missing_where_devices_are_filled(tmp_path):
    """A tensor of no bytes, sent where no link is: 0 times infinity."""
    text = "devices: [{name: a, memory: 6000}, {name: b, memory: 6000}]\nlinks: [{from: a, to: b}]\n"
    (tmp_path / "m.yaml").write_text(text)
    graph = sketch("a -> 3000 us=1; b: !a -> 3000 us=1; c -> 3000 us=1; d: !b -> 3000 us=1", "control")
    problem = schedopt.Problem(graph, "runtime", machine=read_machine(tmp_path / "m.yaml"))
    assert all(len(placement) == 4 for placement in filled_placements(problem))


def test_a_link_that_a_plan_needs_is_missing(tmp_path):
    text = re.sub("links:\n.*\n", "", BASE) + "pins: {a: gpu0, b: cpu0}\n"
    with pytest.raises(schedopt.UsageError, match=r"m.yaml, line 1: g: no plan .* no link from 'gpu0' to 'cpu0'"):
        solved(tmp_path, text)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ("op,gpu,cpu\na,1,2\n", "t.csv: g: the op times have none for op 'b'"),
        ("op,gpu,cpu\na,1,2\nb,,\n", "t.csv, line 3: op 'b' has no time for any kind"),
        ("op,gpu,cpu\na,1,x\n", "t.csv, line 2: time 'x' is not understood"),
        ("op,gpu,cpu\na,1\n", "t.csv, line 2: has 2 columns, not 3"),
        ("op,gpu,cpu\na,1,1\na,1,1\n", "t.csv, line 3: op 'a' is there twice"),
        ("name,gpu\n", "t.csv, line 1: the columns are op"),
        ("op,gpu,npu\na,1,1\nb,1,1\n", "t.csv: op 'a' has a time for kind 'npu', which no device has"),
        ("op,gpu,gpu\na,1,1\nb,1,1\n", "t.csv, line 1: the column of kind 'gpu' is there twice"),
        ("op,gpu\n", "t.csv: has no row, and every op needs one"),
    ],
)
def test_op_times_that_are_wrong(tmp_path, times, reason):
    with pytest.raises(schedopt.SchedoptError, match=reason):
        solved(tmp_path, BASE, times)


def test_a_schedule_file_carries_its_machine(tmp_path):
    result = solved(tmp_path, BASE + "pins: {b: cpu0}\n")
    result.save(tmp_path / "s.json")
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["machine"]["transfers"] == "beside"
    times = [time for step in document["steps"] for time in (step["start_us"], step["end_us"])]
    assert times == pytest.approx([0, 5, 5, 10.04, 10.04, 80.04])
    assert schedopt.verify(two_ops(), tmp_path / "s.json").runtime == pytest.approx(80.04)
    document["steps"][1]["end_us"] = 9.0
    (tmp_path / "s.json").write_text(json.dumps(document))
    with pytest.raises(schedopt.ScheduleError, match=r"ends at 10\.04 us, but the schedule claims 9\.0"):
        schedopt.verify(two_ops(), tmp_path / "s.json")


def test_aliases_that_grow_without_measure_are_refused(tmp_path):
    path, names = tmp_path / "bomb.yaml", "abcdefghij"
    lines = [f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]" for before, one in itertools.pairwise(names)]
    path.write_text("a: &a [1]\n" + "\n".join(lines))
    with pytest.raises(FormatError, match=r"bomb\.yaml: is not YAML: its aliases expand to more than"):
        read_machine(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"devices: {'9' * 5000}", "line 1 has a number of 5,000 letters"),
        (f"devices:\n  - 1{':1' * 20_000}.5", "line 2 has a number of 40,003 letters"),
    ],
)  # fmt: skip
def test_numbers_without_measure_are_refused(tmp_path, text, reason):
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    with pytest.raises(FormatError) as refused:
        read_machine(path)
    assert str(refused.value) == f"{path}: is not YAML: {reason}"


def test_merges_without_measure_are_refused_at_once(tmp_path):
    """By what they stand for, or, where PyYAML (6.0.4) counts a key once, by what they are."""
    levels = (f"a{n}: &a{n} {{<<: [{f'*a{n - 1}, ' * 9}]}}\n" for n in range(1, 12))
    path = tmp_path / "bomb.yaml"
    path.write_text("a0: &a0 {x: 1, y: 2}\n" + "".join(levels))
    with pytest.raises(FormatError, match=r"its << merges expand to more than|a machine has no 'a0'"):
        read_machine(path)


def test_a_link_between_devices_goes_both_ways(tmp_path):
    path = tmp_path / "pair.yaml"
    devices = "devices: [{name: a, memory: 1GB}, {name: b, memory: 1GB}]"
    path.write_text(f"{devices}\nlinks: [{{between: [a, b], bandwidth: 1GB/s, latency: 2us}}]\n")
    machine = schedopt.read_machine(path)
    assert (machine.bandwidth[0][1], machine.bandwidth[1][0]) == (1e9, 1e9)
    assert (machine.latency[0][1], machine.latency[1][0]) == (2.0, 2.0)
