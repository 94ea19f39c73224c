"""Files are written whole, or the reason is one sentence."""

import pytest
from schedopt.core.errors import FormatError
from schedopt.core.files.atomic import check_writable, write_atomically


@pytest.mark.parametrize("refuse", [check_writable, lambda path: write_atomically(path, "text")])
def test_a_folder_is_no_file(refuse, tmp_path):
    with pytest.raises(FormatError, match="is a folder; name a file"):
        refuse(tmp_path)
    with pytest.raises(FormatError, match=r"no/x\.json: .*folder|No such file"):
        refuse(tmp_path / "no" / "x.json")
    assert not list(tmp_path.iterdir())


def test_a_device_is_written_to():
    check_writable("/dev/null")
    write_atomically("/dev/null", "text")
