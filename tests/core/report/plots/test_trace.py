"""The trace keeps the rules of Chrome's trace event format, and its numbers are the simulator's."""

import json
from collections import defaultdict
from functools import partial
from itertools import pairwise

import pytest
from models.timelines import random_timeline
from schedopt import Device, Machine
from schedopt.core.report.plots.page import trace

drawn = partial(random_timeline, 622)


def events_of(timelines):
    document = json.loads(trace(timelines))
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    return document["traceEvents"]


def of_kind(events, kind, **fields):
    return [e for e in events if e["ph"] == kind and all(e[name] == value for name, value in fields.items())]


TIMELINES = [
    *(drawn(seed, 1) for seed in range(3)),
    *(drawn(seed, 3, task="runtime", bandwidth=1e6, latency=0.25) for seed in range(4)),
    *(drawn(seed, 2, task="runtime") for seed in range(3)),
]


@pytest.mark.parametrize("timeline", TIMELINES)
def test_every_event_keeps_the_schema(timeline):
    for event in events_of([timeline]):
        assert isinstance(event["name"], str)
        assert event["pid"] == 0
        assert event["ph"] in "MXCsf"
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] in "Xsf":
            assert 0 <= event["tid"] < timeline.problem.devices
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["cat"] in ("op", "transfer")
        if event["ph"] in "XC":
            assert all(isinstance(value, int) for value in event["args"].values())


@pytest.mark.parametrize("timeline", TIMELINES)
def test_slices_of_a_track_do_not_overlap(timeline):
    tracks = defaultdict(list)
    for event in of_kind(events_of([timeline]), "X"):
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in tracks.values():
        for (_, end), (start, _) in pairwise(slices):
            assert start >= end - 1e-9


@pytest.mark.parametrize("timeline", TIMELINES)
def test_each_op_is_a_slice_and_each_transfer_two_with_an_arrow(timeline):
    events, graph = events_of([timeline]), timeline.problem.graph
    ops = of_kind(events, "X", cat="op")
    assert sorted(event["name"] for event in ops) == sorted(graph.op_names)
    for event in ops:
        op = graph.op_names.index(event["name"])
        assert event["tid"] == timeline.schedule.placement(graph)[op]
        assert event["args"]["memory_bytes"] == timeline.simulation.step_memory[event["args"]["step"] - 1]
        assert event["args"]["workspace_bytes"] == graph.workspace[op]
        reads = set(graph.read_tensor[graph.read_ptr[op] : graph.read_ptr[op + 1]].tolist())
        assert event["args"]["input_bytes"] == sum(int(graph.tensor_size[t]) for t in reads)
        made = [t for t in graph.outputs(op) if graph.alias_of[t] < 0]
        assert event["args"]["allocated_bytes"] == sum(int(graph.tensor_size[t]) for t in made)
    halves = defaultdict(list)
    for event in of_kind(events, "X", cat="transfer"):
        halves[event["args"]["step"]].append(event)
    assert len(halves) == int((timeline.schedule.items < 0).sum())
    for source, target in halves.values():
        assert (source["tid"], target["tid"]) == (source["args"]["from"], source["args"]["to"])
        assert (source["ts"], source["dur"]) == (target["ts"], target["dur"])
    starts, ends = (of_kind(events, kind) for kind in "sf")
    assert sorted(e["id"] for e in starts) == sorted(e["id"] for e in ends)
    assert len({e["id"] for e in starts}) == len(starts) == len(halves)
    for event in starts:
        end = next(e for e in ends if e["id"] == event["id"])
        assert (end["bp"], end["cat"], end["name"]) == ("e", event["cat"], event["name"])
        step = int(event["id"].split(".")[1])
        assert (event["tid"], end["tid"]) == (timeline.schedule.sources[step], timeline.schedule.targets[step])


@pytest.mark.parametrize("contention", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_transfers_beside_work_are_on_tracks_of_their_links_and_no_two_overlap(seed, contention):
    devices = tuple(Device(f"gpu{number}") for number in range(3))
    machine = Machine(devices, 1e6, 0.25, transfers="beside", contention=contention)
    timeline = drawn(seed, 3, task="runtime", machine=machine)
    events = events_of([timeline])
    names = {event["tid"]: event["args"]["name"] for event in of_kind(events, "M", name="thread_name")}
    tracks = defaultdict(list)
    for event in of_kind(events, "X"):
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["cat"] == "transfer":
            sent = event["args"]
            assert names[event["tid"]] == f"gpu{sent['from']} to gpu{sent['to']}"
    assert [names[device] for device in range(3)] == ["gpu0", "gpu1", "gpu2"]
    assert sum(map(len, tracks.values())) == len(timeline.schedule)
    for slices in tracks.values():
        assert all(two[0] >= one[1] for one, two in pairwise(sorted(slices)))
    if contention:
        assert len(set(names.values())) == len(names)
