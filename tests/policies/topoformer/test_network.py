"""The network whole: from graphs to orders and their probabilities, and to a file and back."""

import json
import math
import pickle
from itertools import product
from typing import get_args

import naive
import numpy as np
import pytest
import torch
from models import batches
from safetensors.torch import load_file, save_file
from schedopt import FormatError, Problem, Schedule
from schedopt.core.model.verifier import verify
from schedopt.policies.networks.network import write_network
from schedopt.policies.topoformer.features import encode
from schedopt.policies.topoformer.network import Decoder, Encoder, Network, NetworkParameters, load_network

SMALL = {"layers": 2, "width": 16, "head_width": 4, "heads": 2, "eigenvectors": 3, "alpha": 1.5}
ALL = list(product(get_args(Encoder), get_args(Decoder)))


def network_of(seed=0, **parameters):
    torch.manual_seed(seed)
    return Network(NetworkParameters(**{**SMALL, **parameters})).eval()


def some_graphs(seed, *sizes):
    """Return graphs as the network and as the tests see them."""
    pairs = batches.random_plains(seed, *sizes)
    return [encode(graph, 3) for graph, _ in pairs], [plain for _, plain in pairs]


@pytest.mark.parametrize(("encoder", "decoder"), ALL)
def test_every_network_gives_valid_orders(encoder, decoder):
    """In a batch of graphs of different sizes; persistent bytes are left out of the peaks."""
    graphs, plains = some_graphs(11, 12, 1, 9)
    with torch.no_grad():
        policy = network_of(encoder=encoder, decoder=decoder)(graphs)
    rng = np.random.default_rng(0)
    for rows, decoded in ((1, policy.greedy()), (4, policy.sample(4, rng)), (1, policy.beam(5))):
        for graph, plain, of_graph in zip(graphs, plains, decoded, strict=True):
            assert len(of_graph.orders) == len(of_graph.peaks) == rows
            for order, peak in zip(of_graph.orders, of_graph.peaks.tolist(), strict=True):
                totals = verify(Problem(graph.graph), Schedule.single_device(order))
                assert peak + sum(plain.persistent) == totals.peak == naive.order_peak(plain, order.tolist())


@pytest.mark.parametrize(("encoder", "decoder"), ALL)
def test_probabilities_add_up_to_one(encoder, decoder):
    """Over all orders of two small graphs, one of them padded; the orders of the other are repeated to match."""
    graphs, plains = some_graphs(22, 6, 5)
    orders = [np.array(list(naive.all_orders(plain))) for plain in plains]
    rows = max(map(len, orders))
    with torch.no_grad():
        found = network_of(encoder=encoder, decoder=decoder)(graphs).log_probability(
            [np.resize(of_graph, (rows, of_graph.shape[1])) for of_graph in orders]
        )
    assert found.shape == (2, rows)
    for row, of_graph in zip(found, orders, strict=True):
        assert len(of_graph) > 5
        assert row[: len(of_graph)].exp().sum().item() == pytest.approx(1, rel=1e-5)
        assert row[: len(of_graph)].std() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "decoder"), ALL)
def test_log_probabilities_train_every_part(encoder, decoder):
    """The bias of keys, and that of the last layer, add the same to all that is compared."""
    graphs, _ = some_graphs(18, 14, 12)
    network = network_of(encoder=encoder, decoder=decoder)
    policy = network(graphs)
    orders = [decoded.orders for decoded in policy.sample(3, np.random.default_rng(1))]
    (policy.log_probability(orders) * torch.tensor([1.0, -2.0, 0.7])).sum().backward()
    for name, parameter in network.named_parameters():
        if not name.endswith(("key.bias", "priority.2.bias")):
            assert parameter.grad.abs().max() > 1e-7, name


@pytest.mark.parametrize("decoder", get_args(Decoder))
def test_half_precision_gives_orders_and_gradients(decoder):
    graphs, plains = some_graphs(19, 14, 9)
    network = network_of(decoder=decoder)
    with torch.autocast("cpu", torch.bfloat16):
        policy = network(graphs)
        decoded = policy.sample(3, np.random.default_rng(1))
        found = policy.log_probability([of_graph.orders for of_graph in decoded])
    assert found.dtype == torch.float32
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    for plain, of_graph in zip(plains, decoded, strict=True):
        for order, peak in zip(of_graph.orders.tolist(), of_graph.peaks.tolist(), strict=True):
            assert peak + sum(plain.persistent) == naive.order_peak(plain, order)


def test_heads_of_each_relation():
    assert NetworkParameters(heads=3).topological_heads == (3,) * 7
    assert NetworkParameters(encoder="topoformer-edges", heads=3).topological_heads == (3, 3, 0, 3, 3, 0, 0)
    counts = (1, 2, 0, 1, 2, 0, 4)
    assert NetworkParameters(heads_of=counts, tied=True).topological_heads == counts


@pytest.mark.parametrize(("encoder", "decoder"), ALL)
def test_a_file_gives_the_same_network(tmp_path, encoder, decoder):
    parameters = {"encoder": encoder, "decoder": decoder, "heads_of": (1, 2, 1, 1, 2, 1, 2), "tied": True}
    network, path = network_of(seed=3, **parameters), tmp_path / "weights.safetensors"
    write_network(path, network)
    state = torch.get_rng_state()
    loaded = load_network(path)
    if not encoder.startswith("gat"):  # DGL's layers draw some parameters even without data
        assert torch.equal(torch.get_rng_state(), state)
    assert loaded.parameters_ == network.parameters_
    assert not loaded.training
    before, after = network.state_dict(), loaded.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    graphs, _ = some_graphs(21, 10, 6)
    for one, other in zip(network(graphs).greedy(), loaded(graphs).greedy(), strict=True):
        assert (one.orders == other.orders).all()


def test_a_file_holds_no_more_than_tensors_and_a_shape(tmp_path, monkeypatch):
    """Nothing in it is run when it is read."""
    path = tmp_path / "weights.safetensors"
    write_network(path, network_of())

    def fail(*arguments, **options):
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "Unpickler", fail)
    monkeypatch.setattr(pickle, "load", fail)
    monkeypatch.setattr(pickle, "loads", fail)
    load_network(path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert json.loads(header.pop("__metadata__")["network"])["width"] == 16
    assert {entry["dtype"] for entry in header.values()} == {"F32"}


def test_weights_of_half_precision_and_other_tensors_are_fine(tmp_path):
    network, path = network_of(), tmp_path / "weights.safetensors"
    write_network(path, network)
    change(path, lambda weights: {"adam.0": torch.zeros(2)} | {name: value.half() for name, value in weights.items()})
    loaded = load_network(path)
    for one, other in zip(network.parameters(), loaded.parameters(), strict=True):
        assert other.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def change(path, weights=lambda weights: weights, shape=lambda shape: shape, name="network"):
    """Write the file anew with other weights or another shape."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    about = shape(json.loads(header["__metadata__"]["network"]))
    save_file(weights(load_file(path)), path, {name: about if isinstance(about, str) else json.dumps(about)})


def spoil(weights, value):
    weights["norm.weight"][3] = value
    return weights


WRONG_FILES = {
    "text": (lambda path: path.write_text("weights: 3\n" * 9), "is not a file of"),
    "half of the header": (lambda path: path.write_bytes(path.read_bytes()[:100]), "is not a file of"),
    "one byte more": (lambda path: path.write_bytes(path.read_bytes() + b"0"), "is not a file of"),
    "a header of a petabyte": (
        lambda path: path.write_bytes((2**50).to_bytes(8, "little") + path.read_bytes()[8:]),
        "is not a file of",
    ),
    "pickled": (lambda path: torch.save({"weight": torch.zeros(3)}, path), "is not a file of"),
    "missing": (lambda path: path.unlink(), "cannot be read: "),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read: "),
    "another's metadata": (lambda path: change(path, name="format"), "must be a mapping"),
    "a shape that is no JSON": (lambda path: change(path, shape=lambda shape: "{width"), "is not a file of"),
    "a shape of brackets": (lambda path: change(path, shape=lambda shape: "[" * 100_000), "is not a file of"),
    "an unknown setting": (lambda path: change(path, shape=lambda shape: shape | {"wings": 2}), "no setting 'wings'"),
    "a width of text": (lambda path: change(path, shape=lambda shape: shape | {"width": "16"}), "a whole number"),
    "a width of 1": (lambda path: change(path, shape=lambda shape: shape | {"width": 1}), "width must be"),
    "another width": (lambda path: change(path, shape=lambda shape: shape | {"width": 24}), r"has the shape \[16"),
    "another encoder": (lambda path: change(path, shape=lambda shape: shape | {"encoder": "mlp"}), "is not a file of"),
    "the largest of all": (
        lambda path: change(
            path, shape=lambda shape: shape | {"layers": 64, "width": 4096, "head_width": 1024, "heads": 64}
        ),
        "is not a file of|has the shape",
    ),
    "a tensor less": (
        lambda path: change(path, lambda weights: {n: v for n, v in weights.items() if n != "norm.bias"}),
        "norm.bias",
    ),
    "not a number": (lambda path: change(path, lambda weights: spoil(weights, math.nan)), "not finite"),
    "infinite": (lambda path: change(path, lambda weights: spoil(weights, math.inf)), "not finite"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "message"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_wrong_files(tmp_path, damage, message):
    """Each gives one sentence that starts with the file."""
    path = tmp_path / "weights.safetensors"
    write_network(path, network_of())
    damage(path)
    with pytest.raises(FormatError, match=message) as error:
        load_network(path)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < len(str(path)) + 300
