"""What is kept of kernels."""

import importlib
import pickle
from pathlib import Path


def test_what_an_earlier_version_kept_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    text = "from schedopt.core.kernels.jit import kernel\n\n\n@kernel\ndef twice(x):\n    return 2 * x\n"
    (tmp_path / "kept_kernel.py").write_text(text)
    index = importlib.import_module("kept_kernel").twice._cache._cache_file
    index.save("signature", "code")
    kept = pickle.dumps(index._version) + b"cschedopt.core.kernels.jit\nGone\n."
    Path(index._index_path).write_bytes(kept)
    assert importlib.import_module("kept_kernel").twice(4) == 8
