"""Files are written whole or not at all, and whatever prevents it is one sentence."""

import os
import stat
from pathlib import Path

import pytest
from schedopt import FormatError
from schedopt.core.files.atomic import check_writable, write_atomically


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("missing/x.json", "No such file or directory"),
        ("file/x.json", "Not a directory"),
        ("a\0b", "null"),
    ],
)
def test_what_cannot_be_written_is_said_and_nothing_is_left(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    with pytest.raises(FormatError, match=f"cannot be written: .*{reason}"):
        write_atomically(tmp_path / name, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_device_is_said():
    with pytest.raises(FormatError, match="/dev/full: cannot be written: No space left on device"):
        write_atomically("/dev/full", "new")


def test_a_link_is_written_through_and_permissions_are_kept(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_new_file_has_the_permissions_that_the_user_asks_for(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_folder_is_refused_before_the_work(tmp_path):
    with pytest.raises(FormatError, match="Is a directory"):
        check_writable(tmp_path)
    with pytest.raises(FormatError, match="the folder does not exist"):
        check_writable(tmp_path / "missing" / "x")
    check_writable(tmp_path / "x")


def test_a_name_may_be_as_long_as_the_system_lets_it(tmp_path):
    write_atomically(tmp_path / ("x" * 250), "new")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 250]
