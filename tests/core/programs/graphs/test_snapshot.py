"""Memory snapshots: those that the allocator's twin writes, as PyTorch does, and damaged ones."""

import gzip
import os
import pickle

import numpy as np
import pytest
from models.allocator_traces import FRAMES, MIB, drawn, recorded, small_snapshot
from schedopt import FormatError
from schedopt.core.model.simulator import input_peak
from schedopt.core.programs.graphs.snapshot import BACKWARD, BEFORE, read_snapshot
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.options import ImportOptions


def written(tmp_path, document, name="s.pickle"):
    data = pickle.dumps(document)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 0.5])
def test_the_model_gives_the_recorded_addresses(part, tmp_path):
    """Of the whole run, and of its second half alone, whose first blocks may have kept bytes that nobody recorded."""
    for seed in range(40):
        _, events, sizes, streams, _, _ = drawn(np.random.default_rng([3, seed]))
        document = recorded(events.tolist(), sizes, streams, first=int(part * len(events)))
        snapshot = read_snapshot(written(tmp_path, document, "s.pickle.gz"))
        assert snapshot.replay.addresses.tolist() == snapshot.recorded.tolist(), seed
        assert snapshot.replay.reserved.tolist() == snapshot.reserved.tolist(), seed
        assert snapshot.packed(0.1).arena >= snapshot.allocator.rounded(snapshot.sizes).max(initial=0)


def test_what_a_snapshot_tells(tmp_path):
    path = written(tmp_path, small_snapshot())
    found = read_snapshot(path).document()
    assert (found["peak_allocated"], found["peak_reserved"]) == (10 * MIB + 512, 22 * MIB)
    assert found["holders"]["line"] == {"model.py:31": 512, BACKWARD: 10 * MIB}
    assert found["holders"]["forward"] == {BACKWARD: 10 * MIB, "model.py:52": 512}
    assert (found["addresses_modelled"], found["allocations"]) == (4, 4)
    assert found["arena"] == found["arena_bound"] == 10 * MIB + 512
    assert found["reserved_by_options"]["expandable_segments:True"] == 22 * MIB


def test_a_graph_of_allocations_has_their_peak(tmp_path):
    document = small_snapshot()
    document["device_traces"][1] = document["device_traces"][1][4:]
    path = written(tmp_path, document)
    snapshot = read_snapshot(path)
    graph = read_model(path, ImportOptions(), lambda text: None)
    assert (graph.num_ops, input_peak(graph)) == (4, int(snapshot.live.max()))
    assert BEFORE in snapshot.lines


def test_a_refused_request_is_told(tmp_path):
    document = small_snapshot()
    oom = {"action": "oom", "addr": 0, "size": 2**31, "stream": 0, "device_free": 2**20, "frames": FRAMES}
    document["device_traces"][1].append(oom)
    refused = read_snapshot(written(tmp_path, document)).document()["refused"]
    assert refused == [{"size": 2**31, "left": 2**20, "line": "model.py:31", "event": 6}]


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmful",)


def test_segments_alone_are_refused_and_the_options_of_a_snapshot_are_read(tmp_path):
    document = small_snapshot()
    with pytest.raises(FormatError, match=r"a list, not what torch\.cuda\.memory\._dump_snapshot writes$"):
        read_snapshot(written(tmp_path, document["segments"]))
    document["allocator_settings"] = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:20"}
    document["segments"][0]["is_expandable"] = True
    allocator = read_snapshot(written(tmp_path, document)).allocator
    assert allocator.expandable_segments and allocator.max_split_size == 20 * MIB


def changed(**values):
    return lambda document: document["device_traces"][1][-1].update(values)


BAD = {
    "names 'posix.mkdir'": lambda document: document.update(more=Harmful()),
    "it has no 'segments'": lambda document: document.pop("segments"),
    "no allocation was recorded": lambda document: document.update(device_traces=[[]]),
    "size is -1, not a number of bytes": changed(size=-1),
    "1 allocations are freed or held that lie in no segment": changed(addr=0xFFFF),
    "a second time": lambda document: document["device_traces"][1].append(document["device_traces"][1][-1]),
    "unknown allocator option 'speed'": lambda document: document.update(
        allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "speed:2"}
    ),
    "gives at most": changed(action="alloc", addr=1, size=2**60),
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_no_snapshot_is_one_sentence(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = small_snapshot()
    BAD[message](document)
    with pytest.raises(FormatError) as caught:
        read_snapshot(written(tmp_path, document))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "harmful").exists()
