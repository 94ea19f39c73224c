"""Which kinds of model can be run: told by the model's name, and refused in one sentence."""

import pytest
from schedopt.core.base.errors import UsageError
from schedopt.core.programs import runners


@pytest.mark.parametrize(
    ("model", "runner"),
    [
        ("a/b.onnx", runners.RUNNERS["onnx"]),
        ("a.b.pt2", runners.RUNNERS["pytorch"]),
        ("package.module:function", runners.RUNNERS["pytorch"]),
    ],
)
def test_the_models_name_says_its_kind(model, runner):
    assert runners.runner_kind(model) == runner
    assert runner.entry.startswith("schedopt.core.programs.")


@pytest.mark.parametrize("model", ["graph.pb.gz", "net", "a:b:c", "a b:c", ":f", "m:", "x.dot"])
def test_other_models_are_refused(model):
    with pytest.raises(UsageError, match="not a program that can be run"):
        runners.runner_kind(model)
