"""Tiny models that together do what importing has to get right, and a plain run of a program in any order."""

from operator import getitem

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils import _pytree as pytree


class WrittenViews(nn.Module):
    """Views made before a write and read after it, writes through views, a slice at a time, an input written."""

    def forward(self, x):
        y = x * 2
        flat = y.view(-1)
        before = flat * 1
        y[:, 1].mul_(3)
        after = flat * 3
        y[0] = 5
        y.index_put_((torch.tensor([0, 1]),), torch.tensor(7.0))
        a, _, c = y.split(1, dim=1)
        a.add_(c)
        filled = torch.zeros(4, 3)
        filled[0].copy_(x[0])
        filled[1].copy_(x[1])
        filled[2:4].copy_(y[:2])
        x.relu_()
        return before, after, flat, a, x + 1, y.expand(2, *y.shape), filled, x, y.t()


class ChangedShapes(nn.Module):
    """In-place ops that change the shape of the tensor they are given, among readers of it."""

    def forward(self, x):
        y = x + 1
        view = y.unsqueeze(0)
        y.unsqueeze_(0)
        total = y.sum(1)
        y.squeeze_(0)
        y.t_()
        return y @ x, total, view


class Buffers(nn.Module):
    """Buffers written in place, one a view of another, and a tensor that is neither parameter nor buffer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("tail", self.total[1:])
        self.mask = torch.tensor([1.0, 0.0, 1.0])

    def forward(self, x):
        before = x + self.total
        self.total.add_(x.sum(0))
        between = x * self.total
        self.tail.mul_(2)
        return before * self.mask, between + self.total, x + self.weight, self.tail


class Drawn(nn.Module):
    """Random ops that nothing but their order connects."""

    def forward(self, x):
        noise = F.rrelu(x, training=True)
        return torch.rand_like(x), torch.randn(3, 3), F.dropout(x, 0.3), torch.bernoulli(x.sigmoid()), noise


class Normed(nn.Module):
    """One norm on two branches: what it keeps of their statistics depends on their order, and is read between."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.branch = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norm(self.convolution(x)))
        between = x.sum() + self.norm.running_mean
        z = self.relu(self.norm(self.branch(x)))
        return (y + z).mean((2, 3)), between + 0 * self.norm.weight, x.mean() * self.norm.running_var


class Language(nn.Module):
    """Attention, dropout, and an output layer whose weight is the embedding's; returns a loss and logits."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        logits = self.head(self.block(self.embedding(tokens)))
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten()), logits


class Recurrent(nn.Module):
    """LSTM layers both ways, and GRU cells."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, 2, bidirectional=True)
        self.gru = nn.GRU(8, 3)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


LIBRARY = torch.library.Library("schedopt_siblings", "DEF")
LIBRARY.define("twice(Tensor x) -> (Tensor, Tensor)")


def _twice(x):
    doubled = x * 2
    return doubled, doubled.view(-1)


LIBRARY.impl("twice", _twice, "CompositeExplicitAutograd")


class Siblings(nn.Module):
    """An op whose two results share memory, written through one of them and read through the other."""

    def forward(self, x):
        doubled, flat = torch.ops.schedopt_siblings.twice(x)
        before = doubled + 1
        flat.add_(1)
        return before, doubled * 2, x - flat.sum()


class Several(nn.Module):
    """Ops with several results, some unread, in lists and by name; results that are inputs, repeated or views."""

    def forward(self, x):
        values, indices = torch.topk(x, 2)
        parts = torch.unbind(x * 2)
        largest, _ = x.max(0)
        listed = [x + 1, x + 2]
        torch._foreach_add_(listed, 1.0)
        spectrum = torch.fft.fft(x)
        torch.view_as_real(spectrum).mul_(2)
        constants = torch.arange(3)
        gaps = torch.empty_strided((3,), (2,)).fill_(1)
        return {"values": values, "same": [values, x, 3], "parts": parts[1], "list": listed[0] * listed[1]}, (
            largest + constants * gaps,
            indices,
            spectrum.real,
        )


def image():
    return torch.randn(2, 3, 5, 5)


class Losses(nn.Module):
    """Losses whose mean or sum stays in the memory of what it sums up, and some that do without."""

    def forward(self, x):
        likely = x.sigmoid()
        kept = F.mse_loss(x, likely) + F.smooth_l1_loss(x, likely, reduction="sum") + F.soft_margin_loss(x, likely)
        apart = F.huber_loss(x, likely) + F.mse_loss(x, likely, reduction="none").sum()
        return kept * apart, F.binary_cross_entropy(likely, likely.detach())


MODELS = {
    "losses": (Losses, lambda: torch.randn(30, 30), "none"),
    "written-views": (WrittenViews, lambda: torch.randn(3, 3), "none"),
    "changed-shapes": (ChangedShapes, lambda: torch.randn(3, 3), "none"),
    "buffers": (Buffers, lambda: torch.randn(3, 3), "none"),
    "drawn": (Drawn, lambda: torch.randn(3, 3), "none"),
    "several": (Several, lambda: torch.randn(3, 3), "none"),
    "siblings": (Siblings, lambda: torch.randn(3, 3), "none"),
    "normed": (Normed, image, "none"),
    "normed-sgd": (Normed, image, "sgd"),
    "normed-adam": (Normed, image, "adam"),
    "language": (Language, lambda: torch.randint(11, (2, 5)), "none"),
    "language-sgd": (Language, lambda: torch.randint(11, (2, 5)), "sgd"),
    "language-adam": (Language, lambda: torch.randint(11, (2, 5)), "adam"),
    "recurrent": (Recurrent, lambda: torch.randn(4, 2, 3), "none"),
    "recurrent-sgd": (Recurrent, lambda: torch.randn(4, 2, 3), "sgd"),
}


def build(name):
    """Return the model, its inputs and how it is trained."""
    torch.manual_seed(5)
    model, inputs, training = MODELS[name]
    return model(), (inputs(),), training


def copies(tensors):
    """Return copies that share memory as the originals do."""
    storages = {}
    copied = []
    for value in tensors:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            mine = storages.setdefault(storage.data_ptr(), storage.clone())
            value = torch.empty(0, dtype=value.dtype).set_(mine, value.storage_offset(), value.shape, value.stride())
        copied.append(value)
    return copied


class Run:
    """A program run once, in the order of `names`, on copies of its arguments, with random numbers of a fixed seed.

    `results` are what it returned and `arguments` what it left of its arguments; `values` holds the result of each
    node, and `memory` the bytes of all storages alive at each step that are not its arguments'.
    """

    def __init__(self, program, names):
        graph = program.module.graph
        nodes = {node.name: node for node in graph.nodes}
        self.arguments = copies(program.arguments)
        self.values = dict(zip(graph.find_nodes(op="placeholder"), self.arguments, strict=True))
        held = {pointer for pointer, _ in storages_of(self.arguments)}
        returned = set(graph.output_node().all_input_nodes)
        waiting = {node: set(map(op_of, node.users)) for node in graph.nodes}
        alive, self.memory = {}, []
        torch.manual_seed(0)
        with torch.set_grad_enabled(program.training != "none"):
            for name in names:
                node = nodes[name]
                args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
                self.values[node] = alive[node] = node.target(*args, **kwargs)
                for taken in [user for user in node.users if user.target is getitem]:
                    self.values[taken] = alive[taken] = self.values[node][taken.args[1]]
                self.memory.append(sum(size for at, size in storages_of(alive) if at not in held))
                for users in waiting.values():
                    users.discard(node)
                for value in list(alive):
                    is_tuple = any(user.target is getitem for user in value.users)
                    if is_tuple or (not waiting[value] and value not in returned):
                        del alive[value]
        self.results = fx.map_arg(graph.output_node().args[0], self.values.__getitem__)


def op_of(node):
    return op_of(node.args[0]) if node.target is getitem else node


def storages_of(values):
    """Return the address and bytes of each distinct storage among the values."""
    tensors = [leaf for leaf in pytree.tree_leaves(list_of(values)) if isinstance(leaf, torch.Tensor)]
    return {(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in tensors}


def list_of(values):
    return list(values.values()) if isinstance(values, dict) else list(values)


def same_bits(one, other):
    """Whether two nests of values are equal bit for bit."""
    one, other = pytree.tree_leaves(one), pytree.tree_leaves(other)
    return len(one) == len(other) and all(
        torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and a.dtype == b.dtype
        if isinstance(a, torch.Tensor)
        else a == b
        for a, b in zip(one, other, strict=True)
    )
