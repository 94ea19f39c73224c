"""Units: what is read, what is refused, and what is written for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedopt import UsageError
from schedopt.core.base.units import (
    bytes_alike,
    format_bytes,
    format_change,
    format_microseconds,
    parse_bandwidth,
    parse_bytes,
    parse_count,
    parse_flops,
    parse_microseconds,
    parse_percent,
    parse_seconds,
    signed,
    times_alike,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_bytes, "1000000", 10**6),
        (parse_bytes, " 16 GiB ", 16 * 2**30),
        (parse_bytes, "1.5KiB", 1536),
        (parse_bytes, "2KB", 2000),
        (parse_bytes, "1e3MB", 10**9),
        (parse_bytes, "9007199254740993", 2**53 + 1),
        (parse_percent, " 12.5 %", 0.125),
        (parse_bandwidth, "10GB/s", 1e10),
        (parse_bandwidth, "25", 25.0),
        (parse_flops, "1.5 T", 1.5e12),
        (parse_flops, "250", 250.0),
        (parse_microseconds, "5µs", 5.0),
        (parse_microseconds, "5", 5.0),
        (parse_microseconds, "250ns", 0.25),
        (parse_seconds, "2min", 120.0),
        (parse_seconds, "5m", 300.0),
        (parse_seconds, "1h 30min", 5400.0),
        (parse_seconds, "1e3", 1000.0),
        (parse_bytes, "8gb", 8 * 10**9),
        (parse_bytes, "8gib", 8 * 2**30),
        (parse_count, "1e3", 1000),
        (parse_count, "5k", 5000),
        (parse_count, "1,000,000", 10**6),
    ],
)
def test_parse(parse, text, value):
    assert parse(text) == pytest.approx(value, rel=1e-15)
    assert isinstance(parse(text), type(value))


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_bytes, "", "16GiB"),
        (parse_bytes, "-1", "size must not be negative, not '-1'"),
        (parse_bytes, "nan", "not understood"),
        (parse_bytes, "1 0", "not understood"),
        (parse_bytes, "16X", "unknown unit.*GiB"),
        (parse_bytes, "9223372036854775808", "exceeds"),
        (parse_bytes, "1e400", "exceeds"),
        (parse_percent, "0%", "more than 0%"),
        (parse_percent, "0.6", "60%"),
        (parse_bandwidth, "10GB", "10GB/s"),
        (parse_bandwidth, "10X/s", "unknown unit"),
        (parse_flops, "100GB", "unknown unit; use one of k, M, G, T, P, E"),
        (parse_flops, "fast", "FLOPs per second 'fast' is not understood; write it like 100G"),
        (parse_microseconds, "5 years", "unknown unit.*us"),
        (parse_microseconds, "-5us", "latency must not be negative, not '-5us'"),
        (parse_seconds, "0", "more than 0"),
        (parse_seconds, "ten", "time limit 'ten'.*10s"),
    ],
)
def test_what_is_not_understood_is_shown_with_a_remedy(parse, text, message):
    with pytest.raises(UsageError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1024, "1.00 KiB"), (63.1 * 2**20, "63.1 MiB"), (2**63 - 1, "8.00 EiB")]
)
def test_format_bytes(value, text):
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 us"), (12.34, "12.34 us"), (999.9, "999.9 us"), (4560.0, "4.56 ms"), (1.2e6, "1.2 s"), (4e9, "4,000 s")],
)
def test_format_microseconds(value, text):
    assert format_microseconds(value) == text


@pytest.mark.slow
@given(st.integers(0, 2**62))
def test_what_is_written_is_read_as_about_the_same(value):
    assert parse_bytes(format_bytes(value).replace(",", "")) == pytest.approx(value, rel=6e-3)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([4507238, 4034396, 999 * 1024], ["4.30 MiB", "3.85 MiB", "0.98 MiB"]),
        ([2**30, 5 * 2**20], ["1,024.0 MiB", "5.0 MiB"]),
        ([2**30, 3], ["1.00 GiB", "<0.01 GiB"]),
        ([29650966, 15 * 2**20, 8], ["28.3 MiB", "15.0 MiB", "<0.1 MiB"]),
        ([29650966, 5 * 2**10, 4], ["28,956 KiB", "5 KiB", "<1 KiB"]),
        ([2**20, 0], ["1.00 MiB", "0 MiB"]),
        ([575600, 575300], ["562.1 KiB", "561.8 KiB"]),
        ([10 * 2**20, 10 * 2**20 + 2**10], ["10,240 KiB", "10,241 KiB"]),
        ([10 * 2**20, 10 * 2**20 + 1], ["10,485,760 B", "10,485,761 B"]),
        ([], []),
    ],
)
def test_bytes_of_one_table_have_one_unit(values, texts):
    assert list(map(bytes_alike(values), values)) == texts


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([11814.0, 6837.0], ["11.814 ms", "6.837 ms"]),
        ([2e6, 500.0], ["2,000.0 ms", "0.5 ms"]),
        ([1e6, 2e6], ["1 s", "2 s"]),
        ([12.0, 0.25], ["12.00 us", "0.25 us"]),
        ([5000.0, 0.05], ["5 ms", "<1 ms"]),
        ([0.0], ["0 us"]),
        ([1000.0, 1000.4], ["1.0000 ms", "1.0004 ms"]),
        ([0.1 + 0.2, 0.3], ["0.3 us", "0.3 us"]),
    ],
)
def test_times_of_one_table_have_one_unit(values, texts):
    assert list(map(times_alike(values), values)) == texts


def test_only_what_is_compared_is_told_apart():
    written = bytes_alike([10 * 2**20], [2**20], also=[2**20 + 1])
    assert [written(2**20), written(2**20 + 1), written(10 * 2**20)] == ["1.00 MiB", "1.00 MiB", "10.00 MiB"]


@pytest.mark.slow
@given(st.lists(st.integers(1, 2**50), unique=True), st.sampled_from([bytes_alike, times_alike]))
def test_what_differs_is_written_differently(values, alike):
    assert len(set(map(alike(values), values))) == len(values)


@pytest.mark.parametrize(
    ("value", "before", "text"),
    [(50, 100, "-50.00%"), (100, 100, "0%"), (100_001, 100_000, "+0.001%"), (0, 0, ""), (1, 0, "worse")],
)
def test_a_change_is_never_a_signed_zero(value, before, text):
    assert format_change(value, before) == text


def test_what_rounds_to_zero_has_no_sign():
    assert [signed(one) for one in (0.001, -0.001, 0.0, -0.0, 1.5, -1.5)] == ["0.00"] * 4 + ["+1.50", "-1.50"]
