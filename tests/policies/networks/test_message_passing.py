"""Messages along edges: sums written out, gradients, and DGL against torch alone."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from schedopt.policies.networks import message_passing
from schedopt.policies.networks.message_passing import (
    GatConvolution,
    Receivers,
    edge_softmax,
    using_threads,
)

needs_dgl = pytest.mark.skipif(not message_passing.uses_dgl(), reason="DGL is not installed")
WAYS = [pytest.param(True, id="dgl", marks=needs_dgl), pytest.param(False, id="torch")]


def sum_messages(messages, targets, nodes):
    return Receivers(targets, nodes).sum(messages)


def mean_messages(messages, targets, nodes):
    return Receivers(targets, nodes).mean(messages)


KINDS = [sum_messages, mean_messages, edge_softmax]


def go(monkeypatch, through_dgl):
    monkeypatch.setattr(message_passing, "uses_dgl", lambda device="cpu": through_dgl)


@pytest.fixture(params=WAYS)
def way(monkeypatch, request):
    go(monkeypatch, request.param)
    return request.param


def random_edges(seed, nodes=7, edges=20):
    """Edges that may repeat, with the last node of no in-degree."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack((rng.integers(0, nodes, edges), rng.integers(0, nodes - 1, edges))))


def random_tensor(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("tail", [(), (3,), (3, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_messages_by_hand(way, seed, tail):
    """Large scores too: a softmax must not overflow."""
    _, targets = random_edges(seed)
    messages = 100 * random_tensor(seed, len(targets), *tail)
    total, mean, weights = (reduce(messages, targets, 7) for reduce in KINDS)
    for node in range(7):
        mine = targets == node
        if not mine.any():
            assert not total[node].any()
            assert not mean[node].any()
            continue
        torch.testing.assert_close(total[node], messages[mine].sum(0))
        torch.testing.assert_close(mean[node], messages[mine].mean(0))
        torch.testing.assert_close(weights[mine], messages[mine].softmax(0))
    assert not (targets == 6).any()


@pytest.mark.parametrize("reduce", KINDS)
def test_gradients(way, reduce):
    _, targets = random_edges(1, nodes=4, edges=9)
    messages = random_tensor(1, 9, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda m: reduce(m, targets, 4), messages)


@pytest.mark.parametrize("reduce", KINDS)
def test_no_edges(way, reduce):
    heard = reduce(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), 3)
    assert heard.shape == ((0, 2) if reduce is edge_softmax else (3, 2))
    assert not heard.any()


def by_hand(layer, features, edges):
    """Each node's attention written out, head by head (Velickovic et al., eq. 1-6, with a = [a_l, a_r])."""
    _, heads, outputs = layer.attn_l.shape
    values = (features @ layer.fc.weight.T).view(len(features), heads, outputs)
    heard = layer.bias.view(heads, outputs).repeat(len(features), 1, 1)
    for node in range(len(features)):
        sources = edges[0][edges[1] == node]
        for head in range(heads if len(sources) else 0):
            pairs = torch.cat((values[sources, head], values[node, head].expand(len(sources), -1)), dim=1)
            scores = pairs @ torch.cat((layer.attn_l[0, head], layer.attn_r[0, head]))
            weights = torch.where(scores > 0, scores, 0.2 * scores).softmax(0)
            heard[node, head] += weights @ values[sources, head]
    return heard.flatten(1)


@pytest.mark.parametrize("seed", range(3))
def test_graph_attention_by_hand(way, seed):
    edges, features = random_edges(seed), random_tensor(seed, 7, 5)
    convolution = GatConvolution(5, 4, 3)
    torch.nn.init.normal_(convolution.layer.bias)
    heard = convolution(features, edges)
    torch.testing.assert_close(heard, by_hand(convolution.layer, features, edges))
    torch.testing.assert_close(heard[6], convolution.layer.bias)
    assert not torch.isclose(heard[:6], convolution.layer.bias).all()


def test_graph_attention_without_edges(way):
    convolution = GatConvolution(5, 4, 3)
    heard = convolution(torch.ones(1, 5), torch.zeros(2, 0, dtype=torch.int64))
    torch.testing.assert_close(heard[0], convolution.layer.bias)


def test_gradients_of_graph_attention(way):
    edges, features = random_edges(4), random_tensor(4, 7, 3).double().requires_grad_()
    convolution = GatConvolution(3, 2, 2).double()
    assert torch.autograd.gradcheck(lambda f: convolution(f, edges), features)


@needs_dgl
def test_a_layer_made_with_dgl_works_where_dgl_does_not(monkeypatch):
    """As when it moves to a device that DGL was not built for."""
    edges, features, convolution = random_edges(7), random_tensor(7, 7, 5), GatConvolution(5, 4, 3)
    heard = convolution(features, edges)
    go(monkeypatch, False)
    torch.testing.assert_close(convolution(features, edges), heard)


def test_autocast_does_not_lower_the_precision(way):
    edges, features, convolution = random_edges(8), random_tensor(8, 7, 5), GatConvolution(5, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        heard = convolution(features.bfloat16(), edges)
    torch.testing.assert_close(heard, convolution(features.bfloat16().float(), edges))


@needs_dgl
def test_dgl_has_as_many_threads_as_torch_within_and_afterwards():
    from dgl.utils import get_num_threads, set_num_threads

    def threads():
        return torch.get_num_threads(), get_num_threads()

    before = threads()
    try:
        torch.set_num_threads(2)
        set_num_threads(2)
        with using_threads(3):
            assert threads() == (3, 3)
            with pytest.raises(ValueError, match="within"), using_threads(1):
                assert threads() == (1, 1)
                raise ValueError("within")
            assert threads() == (3, 3)
        assert threads() == (2, 2)
    finally:
        torch.set_num_threads(before[0])
        set_num_threads(before[1])


@pytest.mark.slow
def test_dgl_is_loaded_in_silence(tmp_path):
    """No output, no warning, and no file in the home directory, whatever backend the caller's environment names."""
    code = "import sys; from schedopt.policies.networks.message_passing import uses_dgl; "
    code += "assert uses_dgl() == ('dgl' in sys.modules)"
    environment = {**os.environ, "HOME": str(tmp_path), "DGLBACKEND": "tensorflow"}
    environment.pop("DGLDEFAULTDIR", None)
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not [path for path in tmp_path.rglob("*") if "dgl" in path.name]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("reduce", KINDS)
def test_messages_on_an_accelerator(reduce):
    _, targets = random_edges(9)
    messages = random_tensor(9, len(targets), 3)
    heard = reduce(messages.cuda(), targets.cuda(), 7)
    torch.testing.assert_close(heard.cpu(), reduce(messages, targets, 7))
