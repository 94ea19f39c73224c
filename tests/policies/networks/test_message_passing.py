"""Messages along edges: sums written out, gradients, and DGL against torch alone."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from models import batches
from schedopt import Problem, Search
from schedopt.policies.direct import network as direct
from schedopt.policies.direct.keys import seen
from schedopt.policies.direct.network import DirectNetwork, DirectNetworkParameters
from schedopt.policies.networks import message_passing
from schedopt.policies.networks.message_passing import GatConvolution, MessageGraph, using_threads
from schedopt.policies.regal.features import searched_graph
from schedopt.policies.regal.network import GnnEncoder, RegalNetworkParameters, multigraph_batch
from schedopt.policies.topoformer.encoders import RELATIONS, make_encoder
from schedopt.policies.topoformer.features import batch_of, encode

needs_dgl = pytest.mark.skipif(not message_passing.uses_dgl(), reason="DGL is not installed")
WAYS = [pytest.param(True, id="dgl", marks=needs_dgl), pytest.param(False, id="torch")]


def graph_of(edges, nodes=7):
    return MessageGraph(*edges, torch.tensor([nodes]))


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
    """Both ways along a batch whose second graph has no edges; large scores too: a softmax must not overflow."""
    alone = [random_edges(seed), torch.zeros(2, 0, dtype=torch.int64), random_edges(seed + 1)]
    whole = MessageGraph.batch([tuple(end.numpy() for end in pair) for pair in alone], [7, 2, 8])
    ends = torch.cat([pair + at for pair, at in zip(alone, (0, 7, 9), strict=True)], dim=1)
    nodes, edges = random_tensor(seed, 17, *tail), 100 * random_tensor(seed, ends.shape[1], *tail)
    assert torch.equal(torch.stack((whole.sources, whole.targets)), ends)
    torch.testing.assert_close(whole.means(nodes)[1], nodes[7:9].mean(0))
    for graph, (sources, targets) in ((whole, ends), (whole.reversed, ends.flip(0))):
        torch.testing.assert_close(graph.of_ends("add", nodes, nodes), nodes[sources] + nodes[targets])
        weights, sent = graph.softmax(edges), nodes[sources]
        for *held, messages in ((nodes, None, sent), (None, edges, edges), (nodes, edges, sent * edges)):
            total, mean = graph.heard(*held), graph.heard(*held, "mean")
            for node in range(17):
                mine = targets == node
                torch.testing.assert_close(total[node], messages[mine].sum(0))
                torch.testing.assert_close(mean[node], messages[mine].mean(0).nan_to_num())
                torch.testing.assert_close(weights[mine], edges[mine].softmax(0))


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
    heard = convolution(features, graph_of(edges))
    torch.testing.assert_close(heard, by_hand(convolution.layer, features, edges))
    torch.testing.assert_close(heard[6], convolution.layer.bias)
    assert not torch.isclose(heard[:6], convolution.layer.bias).all()


@needs_dgl
def test_dgl_and_torch_agree(monkeypatch):
    """Embeddings and gradients of every network that sends messages, over a batch of three graphs."""
    plains = [graph for graph, _ in batches.random_plains(5, 12, 1, 9)]
    problems = [Problem(graph, "runtime", 2, bandwidth=1e6) for graph in plains]
    searched = [searched_graph(Search(problem, max_evaluations=30)) for problem in problems]
    encoded = [encode(plain, 3) for plain in plains]
    corrected = DirectNetwork(DirectNetworkParameters(width=8))
    corrected.of_op[-1].reset_parameters()
    cases = [
        (GnnEncoder(RegalNetworkParameters(aggregation="sum", width=8)), multigraph_batch, searched),
        (make_encoder("topoformer", 11, 2, 8, (1,) * RELATIONS, 4), batch_of, encoded),
        (make_encoder("gat-bidirectional", 11, 2, 8, (2,), 4), batch_of, encoded),
        (corrected, direct.batch_of, [seen(problem) for problem in problems]),
    ]
    for network, batch, graphs in cases:
        found = []
        for through_dgl in (True, False):
            go(monkeypatch, through_dgl)
            embeddings = network(batch(graphs))
            embeddings = embeddings.mean if network is corrected else embeddings
            gradients = torch.autograd.grad(embeddings.square().mean(), [*network.parameters()], allow_unused=True)
            found.append([embeddings, *(gradient for gradient in gradients if gradient is not None)])
        for through_dgl, through_torch in zip(*found, strict=True):
            torch.testing.assert_close(through_dgl, through_torch, rtol=1e-6, atol=1e-6)


def test_autocast_does_not_lower_the_precision(way):
    edges, features, convolution = random_edges(8), random_tensor(8, 7, 5), GatConvolution(5, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        heard = convolution(features.bfloat16(), graph_of(edges))
    torch.testing.assert_close(heard, convolution(features.bfloat16().float(), graph_of(edges)))


@needs_dgl
def test_dgl_has_as_many_threads_as_torch_within_and_afterwards():
    from dgl.utils import get_num_threads

    def threads():
        return torch.get_num_threads(), get_num_threads()

    with using_threads(2):
        with using_threads(3):
            assert threads() == (3, 3)
            with pytest.raises(ValueError, match="within"), using_threads(1):
                assert threads() == (1, 1)
                raise ValueError("within")
            assert threads() == (3, 3)
        assert threads() == (2, 2)


@pytest.mark.slow
def test_dgl_is_loaded_in_silence(tmp_path):
    """No output, no warning, and no file in the home directory, whatever backend the caller's environment names."""
    code = "import sys; from schedopt.policies.networks.message_passing import uses_dgl; "
    code += "assert uses_dgl() == ('dgl' in sys.modules)"
    environment = {**os.environ, "HOME": str(tmp_path), "DGLBACKEND": "tensorflow"}
    environment.pop("DGLDEFAULTDIR", None)
    command = [sys.executable, "-W", "default", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not [path for path in tmp_path.rglob("*") if "dgl" in path.name]
