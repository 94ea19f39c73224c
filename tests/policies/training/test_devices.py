"""The first minute on a device, for every trainer: steps, mixed precision, and weights that are used without it.

Each test runs on the CPU too, so that it is known to be right where there is no GPU.
"""

import dataclasses

import numpy as np
import pytest
import torch
from models.runs import weights_of
from models.trainers import METHODS, TOPOFORMER, layered
from schedopt.policies.networks.network import write_network
from schedopt.policies.topoformer.features import encode
from schedopt.policies.topoformer.network import Network, load_network
from schedopt.policies.topoformer.training import Trainer
from schedopt.policies.training.run_folder import WEIGHTS

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_step_of_each_kind_is_done_there_and_gone_on_with(name, device, tmp_path):
    """Weights and moments are on the device, change, and are taken up by another run; the CPU can use them."""
    method = METHODS[name]
    parameters = dataclasses.replace(method.parameters, device=device)
    first = method.trainer(tmp_path, parameters)
    before = weights_of(first.network).clone()
    assert not first.run(must_stop=lambda: first.place.step == 1)
    assert {weight.device.type for weight in first.network.parameters()} == {device}
    assert not torch.equal(weights_of(first.network), before)
    again = method.trainer(tmp_path, parameters)
    assert torch.equal(weights_of(again.network), weights_of(first.network))
    moments = [moment for state in again.optimiser.state_dict()["state"].values() for moment in state.values()]
    assert {moment.device.type for moment in moments if moment.ndim} == {device}
    assert again.run()
    assert {weight.device.type for weight in method.load(tmp_path / WEIGHTS).parameters()} == {"cpu"}


def test_mixed_precision_is_of_products_alone(device, tmp_path):
    """Weights, gradients and losses stay float32, and a loss is that of float32 up to the rounding of bfloat16."""
    losses = {}
    for precision in ("float32", "bfloat16"):
        parameters = dataclasses.replace(TOPOFORMER, device=device, precision=precision)
        trainer = Trainer(tmp_path / precision, parameters)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            product = torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)
        assert product.dtype == getattr(torch, precision)
        assert not trainer.run(must_stop=lambda place=trainer.place: place.step == 1)
        assert {weight.dtype for weight in trainer.network.parameters()} == {torch.float32}
        assert {weight.grad.dtype for weight in trainer.network.parameters() if weight.grad is not None} == {
            torch.float32
        }
        losses[precision] = trainer._measured["loss"][0]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)
    assert losses["bfloat16"] != losses["float32"]


def test_a_network_says_the_same_there_as_on_the_cpu(device, tmp_path):
    """Of graphs of several sizes in one batch, up to rounding: each priority, and the probability of an order."""
    torch.manual_seed(0)
    network = Network(TOPOFORMER.network).eval()
    write_network(tmp_path / "weights.safetensors", network)
    there = load_network(tmp_path / "weights.safetensors").to(device)
    encoded = [encode(graph, TOPOFORMER.network.eigenvectors) for graph in layered(9, 30, 14)]
    with torch.inference_mode():
        policies = [of_device(encoded) for of_device in (network, there)]
        orders = [decoded.orders for decoded in policies[0].sample(2, np.random.default_rng(0))]
        said = [(policy.priorities.cpu(), policy.log_probability(orders).cpu()) for policy in policies]
    for one, other in zip(*said, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3)
    assert policies[1].priorities.device.type == device
