"""Which kinds of model can be run: told by the model's name, and refused in one sentence."""

import pytest
from schedopt.core.errors import UsageError
from schedopt.core.programs import runners


@pytest.mark.parametrize(
    ("model", "runner"),
    [
        ("a/b.onnx", runners.ONNX),
        ("a.b.pt2", runners.TORCH),
        ("package.module:function", runners.TORCH),
    ],
)
def test_the_models_name_says_its_kind(model, runner):
    assert runners.runner_of(model) == runner
    for entry in runner:
        assert entry.startswith("schedopt.core.programs.")


@pytest.mark.parametrize("model", ["graph.pb.gz", "net", "a:b:c", "a b:c", ":f", "m:", "x.dot"])
def test_other_models_are_refused(model):
    with pytest.raises(UsageError, match="not a program that can be run"):
        runners.runner_of(model)
