"""`schedopt.fit`: every way, proven or not, its texts, the largest batch, and what cannot be asked."""

import json
from dataclasses import replace

import pytest
import schedopt
from models import torch_models
from models.seeds import seeds
from models.small_graphs import branches, sketch, training_step
from naive.graphs import random_graph
from schedopt.core.api.fit import AS_IT_IS, IN_ANOTHER_ORDER, WITH_RECOMPUTATION, Fit, FitOption, LargestBatch
from schedopt.core.api.testing import count_peak
from schedopt.core.model.simulator import input_peak


@pytest.mark.parametrize(
    ("memory", "verdicts", "sentence"),
    [
        (26, ["yes", "yes"], "It fits as it is: 26 B of 26 B."),
        (25, ["no", "yes"], "It fits in another order: 19 B of 25 B."),
        (18, ["no", "no", "no"], "Not on one device: no recomputation keeps 18 B (proven)."),
        (17, ["no", "no", "no"], "Not on one device: even with recomputation nothing is below 18 B (proven)."),
    ],
)
def test_each_way_is_tried(memory, verdicts, sentence):
    fit = schedopt.fit(branches(), memory, time_limit="60s")
    assert [way.verdict for way in fit.ways] == verdicts
    assert [way.name for way in fit.ways] == [AS_IT_IS, IN_ANOTHER_ORDER, WITH_RECOMPUTATION][: len(verdicts)]
    assert fit.sentence() == sentence
    assert fit.fits == ("yes" in verdicts)
    assert sentence in repr(fit)
    assert fit.title() == f"branches: does it fit into {memory} B?"
    document = json.loads(fit.json())
    assert [way["verdict"] for way in document["ways"]] == verdicts
    assert document["fits"] == fit.fits


def test_bytes_that_would_read_as_the_memory_are_told_apart_from_it():
    """84.0 KiB and 4 bytes in 84.0 KiB."""
    fit = schedopt.fit(sketch("a -> 86020; b: a -> 0f", "near"), "84KiB")
    assert fit.title() == "near: does it fit into 86,016 B?"
    assert fit.sentence() == "Not on one device: even with recomputation nothing is below 86,020 B (proven)."
    assert repr(fit).count("86,020 B") == 6
    assert (
        schedopt.fit(sketch("a -> 86020; b: a -> 0f"), "85KiB").sentence() == "It fits as it is: 84.0 KiB of 85.0 KiB."
    )


def test_a_block_that_the_answer_needs_is_said():
    """Live bytes are 50 MiB in the only order, and PyTorch reserves so few only in a block that was there before."""
    mib = 2**20
    text = f"a -> {3 * mib}; b: a -> {21 * mib}; c: b -> {2 * mib}; d: c -> {23 * mib}; e: d c -> {25 * mib}f"
    fit = schedopt.fit(sketch(text, "steps"), 60 * mib, allocator="cuda")
    assert fit.sentence().endswith("52.0 MiB of 60.0 MiB, opening block of 52.0 MiB before the weights.")
    assert json.loads(fit.json())["ways"][1]["reserved"]["opening_block_before_weights"]
    for allocator, left_out in (("cuda", True), ("cuda:cublas_workspace:default", False), (None, False)):
        fit = schedopt.fit(sketch("addmm_2 -> 4", "a product"), 60 * mib, allocator=allocator)
        assert ("without cuBLAS's workspaces" in fit.sentence()) == left_out


@pytest.mark.parametrize(("runtime", "words"), [(2.0, "time"), (0.0, "runs")])
def test_it_fits_with_recomputation(runtime, words):
    """Four layers and a loss keep 410 bytes in any order; one layer less while the loss is made is one run more."""
    fit = schedopt.fit(training_step(4, runtime=runtime), 330, time_limit="60s")
    way = fit.ways[-1]
    assert [each.verdict for each in fit.ways] == ["no", "no", "yes"]
    assert fit.sentence() == f"It fits with recomputation: 320 B of 330 B, +11.11% {words}."
    assert f"+11.11% {words}" in fit.summary().splitlines()[-3]
    assert json.loads(fit.json())["ways"][-1]["added_share"] == pytest.approx(1 / 9)
    assert schedopt.verify(way.result.problem, way.result).peak == way.peak <= 330


def test_devices_are_tried_until_it_fits():
    graph = sketch("make0 -> 100f; make1 -> 100f; make2 -> 100f", "pairs")
    fit = schedopt.fit(graph, 100, devices=8, time_limit=2)
    assert [(way.name, way.verdict) for way in fit.ways[3:]] == [("on 2 devices", "no"), ("on 3 devices", "yes")]
    assert fit.ways[3].peak is None, "the bound says that no schedule fits, so none was looked for"
    assert fit.sentence() == "It fits on 3 devices: 100 B of 100 B."
    assert schedopt.verify(fit.ways[-1].result.problem, fit.ways[-1].result).peak == 100
    assert len(schedopt.fit(graph, 300, devices=8).ways) == 2
    assert not schedopt.fit(graph, 99, devices=8).fits


@pytest.mark.slow
def test_a_machine_is_tried_by_its_fastest_device_and_as_a_whole():
    small, host = schedopt.Device("gpu", memory=18), schedopt.Device("host", memory=30, speed=0.5)
    machine = schedopt.Machine((host, small), bandwidth=1e9)
    fit = schedopt.fit(branches(), machine=machine, time_limit=5)
    assert [(way.label, way.verdict) for way in fit.ways] == [
        ("as it is on gpu", "no"),
        ("in another order on gpu", "no"),
        ("with recomputation on gpu", "no"),
        (fit.ways[3].label, "yes"),
    ]
    result = fit.ways[3].result
    peaks = schedopt.verify(result.problem, result).peak_per_device
    limits = {"host": 30, "gpu": 18}
    assert all(peak <= limit for peak, limit in zip(peaks, limits.values(), strict=True))
    share, name = max((peak / limits[device], device) for device, peak in zip(limits, peaks, strict=True))
    assert (fit.ways[3].device, fit.ways[3].peak / fit.ways[3].memory) == (name, share)
    assert fit.sentence() == f"It fits on all devices, least room on {name}: {fit.ways[3].peak} B of {limits[name]} B."
    assert fit.title() == "branches: does it fit on host and gpu?"
    document = json.loads(fit.json())
    assert document["machine"]["devices"][1]["memory"] == 18 and document["ways"][3]["device"] == name
    assert schedopt.fit(branches(), 26, machine=schedopt.Machine((schedopt.Device("a"), small))).ways[0].memory == 26
    assert schedopt.fit(branches(), 9, machine=machine, time_limit=5).sentence() == "No schedule fits (proven)."
    unlimited = schedopt.Machine((schedopt.Device("a", speed=9), small))
    assert schedopt.fit(branches(), machine=unlimited).sentence() == "It fits as it is on a: 26 B."


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, quick=3))
def test_a_claim_of_no_is_never_beaten(seed):
    import numpy as np

    graph, _ = random_graph(np.random.default_rng(seed), 10)
    best = schedopt.solve(graph).peak_memory
    for memory in {best - 1, best, input_peak(graph) - 1, input_peak(graph)} - {0}:
        fit = schedopt.fit(graph, memory)
        orders = [way for way in fit.ways if way.name in (AS_IT_IS, IN_ANOTHER_ORDER)]
        assert any(way.verdict == "yes" for way in orders) == (memory >= best)
        for way in fit.ways:
            assert way.peak is None or way.lower_bound <= way.peak
            assert (way.verdict == "yes") == (way.peak is not None and way.peak <= memory)


def test_what_is_not_proven_is_not_claimed():
    way = FitOption(IN_ANOTHER_ORDER, memory=100, peak=120, lower_bound=90)
    assert way.verdict == "not found"
    again = FitOption(WITH_RECOMPUTATION, 100, 110, 80)
    fit = Fit("net", 100, (FitOption(AS_IT_IS, 100, 150, 150), way, again))
    assert fit.sentence() == "No way to fit it was found, and none is proven impossible."
    proven = replace(fit, ways=(fit.ways[0], replace(way, lower_bound=101), again))
    said = "No order is below 101 B (proven), and no recomputation was found that fits; one may exist."
    assert proven.sentence() == said
    assert FitOption(AS_IT_IS, 100, 90, 90, measured=101).verdict == "no", "what was measured counts"


def test_weights_that_do_not_fit_are_said_to():
    fit = schedopt.fit(sketch("op -> 10 keep=1000", "heavy"), 500)
    assert fit.sentence() == "Not on one device: weights and all else that stays take 1,000 B."
    assert not fit.fits


def test_the_batch_is_named_with_what_limits_it():
    rows = (LargestBatch(AS_IT_IS, 8, 90, 101, True), LargestBatch(IN_ANOTHER_ORDER, 12, 99, 102, False))
    fit = Fit("net", 100, (), "batch", rows)
    assert fit.sentence() == "It fits with batch 12 in another order; as it is with 8."
    assert "102 B (found)" in repr(fit)
    proven = replace(rows[1], next_peak=101, next_is_proven=True)
    assert "at least 101 B" in repr(Fit("net", 100, (), "batch", (proven,)))
    ended = Fit("net", 100, (), "n", (LargestBatch(AS_IT_IS, 64, 90, None, True, "size n=65 is not from 2 to 64"),))
    assert ended.sentence() == "It fits with n 64 as it is. No larger one is possible: size n=65 is not from 2 to 64"
    none = Fit("net", 100, (), "n", (LargestBatch(AS_IT_IS, 0, None, 200, True),))
    assert (none.fits, none.sentence()) == (False, "It does not fit with any n.")


@pytest.mark.slow
def test_as_it_is_tells_reserved_bytes_under_an_allocator_and_live_ones_of_its_run():
    """Python's names keep what a trace frees, so that the call itself reserves more than was live."""
    model, inputs = torch_models.branches()
    fit = schedopt.fit("models.torch_models:branches", "1GiB", allocator="cuda", confirm=True, time_limit="1s")
    own = fit.ways[0]
    assert own.name == AS_IT_IS and own.verdict == "yes"
    assert own.peak == count_peak(model, inputs, "cuda").memory > own.measured
    assert own.peak % (2 * 2**20) == 0
