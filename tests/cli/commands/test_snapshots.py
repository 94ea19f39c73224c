"""`schedopt show` and `import` of memory snapshots."""

import json
import pickle

from models.allocator_traces import FRAMES, small_snapshot


def test_show_tells_what_is_reserved_and_what_was_refused(run, tmp_path):
    document = small_snapshot()
    oom = {"action": "oom", "addr": 0, "size": 2**31, "stream": 0, "device_free": 2**20, "frames": FRAMES}
    document["device_traces"][1].append(oom)
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(document))
    result = run("show", tmp_path / "s.pickle")
    assert result.exit_code == 0, result.stderr
    assert "reserved and unused then" in result.stdout
    assert "4 of 4" in result.stdout
    assert "refused: 2.00 GiB at model.py:31, event 6; the device had 1.00 MiB left" in result.stdout
    assert json.loads(run("show", tmp_path / "s.pickle", "--json").stdout)["allocations"] == 4
    assert run("import", tmp_path / "s.pickle", "--output", tmp_path / "g.pb").exit_code == 0
    assert run("solve", tmp_path / "g.pb", "--quiet").exit_code == 0


def test_a_damaged_snapshot_is_one_sentence(run, tmp_path):
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(small_snapshot())[:-9])
    result = run("show", tmp_path / "s.pickle")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "truncated or damaged" in result.stderr
