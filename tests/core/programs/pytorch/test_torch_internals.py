"""Private names of PyTorch: in which files they are, and what is said where one is missing."""

import ast
import re
import threading
from pathlib import Path

import pytest
import schedopt
import torch
from schedopt import ProgramError
from schedopt.core.programs.pytorch import refuse_older
from schedopt.core.programs.pytorch.torch_internals import _loader, is_profiling, needed_by

ROOM = Path(__file__).parents[4] / "core" / "programs" / "pytorch"
FILES = [path for path in sorted(ROOM.glob("*.py")) if not path.name.endswith("_internals.py")]
OWN = {"_replace", "_asdict", "_getframe"}
"""Public names, in spite of the underscore."""


def is_private(name):
    return re.match(r"_[^_]", name) is not None or name in ("experimental", "functorch")


def private_names(tree):
    """Yield the private names of torch: of its modules, and of attributes that this code defines nowhere."""
    own = OWN | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                modules = [] if node.level else [f"{node.module}.{name}" for name in modules]
            yield from (name for name in modules if name.startswith("torch.") and any(map(is_private, name.split("."))))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if not (isinstance(root, ast.Name) and root.id in ("self", "cls")):
                yield node.attr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_private_names_are_in_the_files_of_internals(path):
    assert list(private_names(ast.parse(path.read_text()))) == []


def test_private_names_are_found():
    code = "from torch.utils import _pytree\nimport torch._dynamo\nfrom torch.fx.experimental import x\ntensor._version"
    found = ["torch.utils._pytree", "torch._dynamo", "torch.fx.experimental.x", "_version"]
    assert sorted(private_names(ast.parse(code))) == sorted(found)


def test_a_name_that_is_missing_is_one_sentence():
    said = r"^PyTorch programs cannot run with PyTorch 2\..*'_gone'.*; install a version from"
    with pytest.raises(ProgramError, match=said), needed_by("PyTorch programs"):
        from torch.utils import _gone  # noqa: F401


@pytest.mark.parametrize("version", ["2.5.1", "1.13.0+cpu"])
def test_a_torch_that_is_too_old_is_one_sentence(version):
    refuse_older(torch.__version__)
    refuse_older("2.10.0a0+git")
    with pytest.raises(ProgramError, match=rf"^PyTorch programs need torch 2\.9 or later; here is {version[:4]}"):
        refuse_older(version)


@pytest.mark.slow
def test_no_source_of_generated_code_is_kept():
    model, inputs = torch.nn.Linear(4, 4).eval(), torch.ones(2, 4)
    before = set(_loader.eval_cache)
    schedopt.optimize(model, inputs, evaluations=5)
    assert set(_loader.eval_cache) == before


@pytest.mark.slow
def test_a_look_for_a_profiler_takes_no_half_built_tuple_of_another_thread():
    """CPython ends the making of a tuple with a `SystemError` if anyone else refers to it."""
    errors, done, others = [], threading.Event(), [[number] for number in range(200_000)]

    def build():
        try:
            while not done.is_set():
                tuple(number for number in range(2000))
        except SystemError as error:
            errors.append(error)

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert not any(is_profiling() for _ in range(10))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert others and not errors
    profiler = torch.autograd.profiler.profile(use_kineto=True)
    profiler.entered = True
    assert is_profiling()
