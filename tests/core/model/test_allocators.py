"""Models of allocators: options, the kernel against its twin, what is known of PyTorch's allocator."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from models.allocator_traces import check_twin
from schedopt import UsageError
from schedopt.core.model.allocators import MIB, Allocator, Segment

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def test_the_kernel_is_its_twin():
    ended = [check_twin(np.random.default_rng([7, seed]))[1] for seed in range(150)]
    assert 20 < sum(ended) < 100


@pytest.mark.parametrize(
    ("options", "sizes", "blocks"),
    [
        ("", [0, 1, 512, 513, 3 * MIB + 1], [512, 512, 512, 1024, 3 * MIB + 512]),
        ("roundup_power2_divisions:4", [1200, 2 * MIB, 5 * MIB, 7 * MIB + 1], [1536, 2 * MIB, 5 * MIB, 8 * MIB]),
        ("roundup_power2_divisions:[256:1,512:2,>:8]", [300 * MIB, 513 * MIB], [300 * MIB, 576 * MIB]),
    ],
)
def test_sizes_are_rounded_as_pytorch_rounds_them(options, sizes, blocks):
    assert Allocator.of_options(options).rounded(np.array(sizes)).tolist() == blocks


def test_a_request_takes_a_segment_of_its_kind():
    """Up to 1 MiB from 2 MiB, up to 10 MiB from 20 MiB, above that in steps of 2 MiB; equal requests share."""
    sizes = np.array([1000, MIB, 5 * MIB, 5 * MIB, 11 * MIB, 10 * MIB])
    replay = Allocator().replay(np.arange(6), sizes)
    assert (replay.reserved // MIB).tolist() == [2, 2, 22, 22, 34, 34]
    grown = Allocator.parse("cuda:expandable_segments:True").replay(np.arange(6), sizes)
    assert (grown.reserved // MIB).tolist() == [2, 2, 22, 22, 42, 42]


def test_at_a_limit_what_is_free_is_given_back_and_the_request_tried_again():
    events, sizes = np.array([0, ~0, 1, ~1, 2]), np.array([12, 14, 40]) * MIB
    replays = [Allocator().replay(events, sizes, capacity=many * MIB) for many in (26, 14, 39)]
    assert [(replay.done, replay.retries) for replay in replays] == [(4, 1), (4, 2), (4, 1)]
    fits = Allocator().replay(events, sizes, capacity=40 * MIB)
    assert (fits.done, fits.retries, fits.peak) == (5, 1, 40 * MIB)


def test_a_start_is_gone_on_from():
    start = Segment(1 << 20, 20 * MIB, 1, ((1 << 20, 4 * MIB, 0), (5 << 20, 16 * MIB, -1)))
    replay = Allocator().replay(np.array([1, ~0, 2]), np.array([4, 5, 4]) * MIB, start=[start])
    assert replay.addresses.tolist() == [1 << 20, 5 << 20, 1 << 20]
    assert (replay.peak, replay.segments) == (20 * MIB, 0)


def test_options_are_written_as_they_are_read():
    text = "cuda:max_split_size_mb:64,expandable_segments:True,roundup_power2_divisions:8"
    assert str(Allocator.parse(text)) == text
    assert Allocator.parse("cuda") == Allocator.of_options("") == Allocator.of_options("backend:native")
    workspaces = [Allocator.parse(f"cuda:cublas_workspace:{text}") for text in ("default", ":4096:2:16:8", ":4096:8")]
    assert [one.cublas_workspace for one in workspaces] == [8_519_680, 8_519_680, 32 * MIB]
    assert [Allocator.parse(str(one)) for one in workspaces] == workspaces
    assert Allocator.parse(" cuda: max_split_size_mb : 20 ,").max_split_size == 20 * MIB
    listed = Allocator.of_options("roundup_power2_divisions:[4:1,>:8]")
    assert Allocator.parse(str(listed)) == listed


@pytest.mark.parametrize(("text", "message"), TABLE["unknown options"])
def test_options_that_pytorch_does_not_know_are_refused(text, message):
    with pytest.raises(UsageError, match=message.replace("[", r"\[").replace("?", r"\?")):
        Allocator.parse(text)


def test_sizes_beyond_every_device_are_refused():
    with pytest.raises(UsageError, match="gives at most"):
        Allocator().replay(np.array([0]), np.array([2**50]))
