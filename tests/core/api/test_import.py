"""import_model: files, modules, and what is neither."""

from pathlib import Path

import pytest
import schedopt


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((42,), {}, "a model is a path, module:function, or a PyTorch module, not int"),
        (("net.dot", 1), {}, "inputs are for a PyTorch module; net.dot has its own"),
        (("net.dot",), {"costs": "free"}, "unknown costs 'free'; choose roofline or measured"),
        (("net.dot",), {"device": "abacus"}, "unknown device 'abacus'; choose cpu or cuda"),
        (("net.dot",), {"training": "sgd"}, "has no use for --training"),
        (("net.dot",), {"default_size": "much"}, "default_size='much' is not understood"),
    ],
)
def test_what_cannot_be_imported_is_a_usage_error(tmp_path, monkeypatch, arguments, options, message):
    monkeypatch.chdir(tmp_path)
    Path("net.dot").write_text("digraph { a [size=4] }")
    with pytest.raises(schedopt.UsageError, match=message):
        schedopt.import_model(*arguments, **options)


def test_import_model_takes_a_module():
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    graph = schedopt.import_model(network, torch.ones(2, 4))
    assert graph.tensor_size.max() == 2 * 8 * 4
    step = schedopt.import_model(network.train(), torch.ones(2, 4), training="sgd")
    assert step.num_ops > graph.num_ops
    exported = torch.export.export(network.eval(), (torch.ones(2, 4),))
    assert schedopt.import_model(exported) == graph
    with pytest.raises(schedopt.UsageError, match="with example inputs"):
        schedopt.import_model(network)
    with pytest.raises(schedopt.UsageError, match="default_size, reverse and graph are for graph files"):
        schedopt.import_model(network, torch.ones(2, 4), default_size=4)
