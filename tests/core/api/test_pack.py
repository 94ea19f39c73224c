"""`schedopt.pack` and the files that it reads and writes."""

import gzip

import pytest
import schedopt
from schedopt import FormatError, ScheduleError, UsageError
from schedopt.core.api.pack import verify_buffers
from schedopt.core.files.buffers_csv import read_buffers

ROWS = "id,lower,upper,size\nin,0,2,600\nhidden,1,3,1000\nout,2,4,100\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "buffers.csv"
    path.write_text(ROWS)
    return path


def test_what_it_writes_it_reads_and_checks(file, tmp_path):
    packed = schedopt.pack(file, align=64, time_limit="1s")
    assert (packed.arena, packed.bound, packed.status) == (1664, 1664, "optimal")
    assert set(packed.offsets) == {"in", "hidden", "out"}
    packed.save(tmp_path / "placed.csv")
    placed = read_buffers(tmp_path / "placed.csv")
    assert dict(zip(placed.ids, placed.offsets.tolist(), strict=True)) == packed.offsets
    assert placed.lifetimes.alignment.tolist() == [64, 64, 64]
    verify_buffers("placed", placed, placed.offsets.tolist(), packed.arena, packed.bound)
    assert "optimal" in repr(packed)


def test_columns_in_any_order_gzip_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "buffers.csv.gz"
    rows = b"\xef\xbb\xbfsize,id,upper,lower,alignment\r\n10,a,3,0,8\r\n7,b,4,1,1\r\n64,c,5,2,64\r\n"
    path.write_bytes(gzip.compress(rows))
    packed = schedopt.pack(path, time_limit=1.0)
    assert packed.bound == packed.arena == 81  # c at 0, a at 64, b behind it
    assert packed.offsets == {"a": 64, "b": 74, "c": 0}


def test_rows_stand_for_a_file(file):
    rows = [dict(zip(("id", "lower", "upper", "size"), row, strict=True)) for row in [("x", 0, 1, 5), ("y", 0, 1, 3)]]
    packed = schedopt.pack(rows)
    assert packed.arena == 8
    for wrong, message in [
        ([{"id": 1}], "buffer 0 must be a mapping with id, lower, upper, size"),
        ([rows[0], rows[0]], "an id of its own"),
        ([{**rows[0], "size": 1.5}], "size"),
        ([{**rows[0], "gaps": ""}], "buffer 0 must be a mapping"),
        (3, "buffer 0 must be a mapping"),
    ]:
        with pytest.raises(UsageError, match=message):
            schedopt.pack(wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must name the columns id, lower, upper, size"),
        ("id,lower,upper\n", "must name the columns"),
        ("id,lower,upper,size,gaps\n", "the column 'gaps' is not known"),
        ("id,lower,upper,size,size\n", "the column 'size' is there twice"),
        (ROWS + "more,1,2\n", "line 5 has 3 values for 4 columns"),
        (ROWS + "more,1,2,x\n", "line 5 has the size 'x', which is no whole number"),
        (ROWS + "more,1,2," + "9" * 30 + "\n", "line 5 has the size 9.* out of range"),
        (ROWS + "in,1,2,3\n", "the id 'in' is there twice"),
        (ROWS + "more,2,2,3\n", "line 5: it must end after it starts, not be from 2 to 2"),
        (ROWS + "more,2,3,-3\n", "line 5: it must not have a negative size"),
        ('id,lower,upper,size\n"a,1,2,3\n', "not a CSV file of buffers"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, text, message):
    path = tmp_path / "buffers.csv"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        schedopt.pack(path)


@pytest.mark.parametrize(
    ("offsets", "arena", "bound", "message"),
    [
        ([0, 0, 2000], 4000, None, "at 1, buffer '(hidden|in)' at 0 to .* overlaps buffer"),
        ([0, 600, 0], 1500, None, "buffer 'hidden' has the addresses 600 to 1600, outside of its arena of 1500 bytes"),
        ([0, 600, 0], 1600, 1599, "the bound is said to be 1599 bytes, but 1600 live at once"),
    ],
)
def test_wrong_offsets_are_found(file, offsets, arena, bound, message):
    with pytest.raises(ScheduleError, match=message):
        verify_buffers("here", read_buffers(file), offsets, arena, bound)
