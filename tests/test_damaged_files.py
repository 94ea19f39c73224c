"""Damaged files of every format, and random instances in three ways: a part of tests/bench/campaign.py."""

import importlib.util
from pathlib import Path

import pytest
from models import three_ways

SPEC = importlib.util.spec_from_file_location("campaign", Path(__file__).parent / "bench" / "campaign.py")
campaign = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(campaign)
FORMATS = (
    *("costgraph-binary", "costgraph-text", "costgraph-gzip", "dot", "node-link", "inductor", "inductor-log", "curve"),
    *("edge-list", "workflow", "snapshot", "execution-trace", "any-content", "schedule", "order", "resume", "config"),
    *("front", "checkpoint", "weights", "onnx", "tflite"),
)


def test_every_format_is_tried():
    assert set(campaign.formats()) == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_true_files_are_read(name, tmp_path):
    """But weights that are cut on purpose, as whole ones are large, and a loop of which only a run tells the sizes."""
    suffix, files, read = campaign.formats()[name]
    for number, data in enumerate(files):
        if (name, number) not in (("weights", 0), ("onnx", 2)):
            path = tmp_path / f"{name}{suffix}"
            path.write_bytes(data)
            read(str(path))


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(name, tmp_path):
    assert [found for seed in range(30) if (found := campaign.finding(name, seed, str(tmp_path)))] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_thousand_damaged_files_of_each_format(name, tmp_path):
    assert [found for seed in range(1000) if (found := campaign.finding(name, seed, str(tmp_path)))] == []


def test_what_is_no_sentence_is_found(tmp_path, monkeypatch):
    def read(path):
        raise KeyError(path)

    monkeypatch.setattr(campaign, "formats", lambda: {"broken": (".x", [b"x"], read)})
    assert campaign.finding("broken", 0, str(tmp_path)).startswith("KeyError at test_damaged_files.py:")


@pytest.mark.slow
def test_simulator_verifier_and_exhaustive_search_agree():
    assert [found for seed in range(60) if (found := three_ways.disagreement(seed))] == []


def test_a_finished_chunk_is_not_done_again(tmp_path, capsys):
    done = []

    class Alone:
        def __init__(self, jobs):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def submit(self, chunk, name, seeds):
            done.append((name, seeds))
            return type("Future", (), {"result": lambda self: chunk(name, seeds)})()

    campaign_pool, campaign.ProcessPoolExecutor = campaign.ProcessPoolExecutor, Alone
    try:
        for each in (700, 1200):
            campaign.run(lambda name, seeds: [(seeds.start, "broke")], ["a"], each, tmp_path / "c.jsonl", 1)
    finally:
        campaign.ProcessPoolExecutor = campaign_pool
    assert done == [("a", range(500)), ("a", range(500, 1000)), ("a", range(1000, 1500))]
    assert "1,500 tried, 3 found" in capsys.readouterr().out
