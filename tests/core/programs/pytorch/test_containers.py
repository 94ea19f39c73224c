"""What a program's containers hold is put back, whatever their classes refuse."""

from collections import Counter, OrderedDict, defaultdict, deque

import pytest
import schedopt
import torch
from schedopt.core.programs.pytorch.step_graph import copy_of, is_unchanged, put_back
from torch import nn


def refuse(*_, **__):
    raise TypeError("it is frozen")


class Frozen(OrderedDict):
    """As configurations of libraries are: it can be read, and nothing else."""

    def __init__(self, scale, **more):
        super().__init__(scale=scale, **more)

    update = clear = pop = copy = setdefault = refuse


class Parts(list):
    def __init__(self, first, *others):
        super().__init__([first, *others])

    clear = extend = copy = refuse


class Names(set):
    clear = update = copy = refuse


def change(container):
    """Add, drop and replace something, past what the class allows."""
    if isinstance(container, dict):
        builtin = OrderedDict if isinstance(container, OrderedDict) else dict
        builtin.__delitem__(container, next(iter(container)))
        builtin.__setitem__(container, "more", object())
    elif isinstance(container, set):
        container.remove(next(iter(container)))
        container.add("more")
    else:
        container[0] = object()
        container.append("more")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Frozen(2.0, depth=3, width=4),
        lambda: {"a": [1], "b": 2},
        lambda: defaultdict(list, a=[1], b=[2]),
        lambda: Counter("schedule"),
        lambda: OrderedDict(a=1, b=2),
        lambda: Parts(1, [2], 3),
        lambda: [1, [2], 3],
        lambda: Names(["a", "b"]),
        lambda: {"a", "b"},
        lambda: deque([1, 2, 3], maxlen=4),
    ],
)
def test_what_was_held_is_put_back(make):
    container = make()
    kept = copy_of(container)
    assert is_unchanged(container, kept)
    put_back(container, kept)
    assert container == make()
    change(container)
    assert not is_unchanged(container, kept)
    put_back(container, kept)
    assert is_unchanged(container, kept)
    assert container == make()
    assert list(container) == list(make()) or isinstance(container, set)


class Registry(OrderedDict):
    """As a library's, which makes what it is asked for."""

    def __getitem__(self, name):
        return super().__getitem__(name)()


def test_a_registry_keeps_what_makes_its_parts():
    registry = Registry(relu=nn.ReLU)
    kept = copy_of(registry)
    assert is_unchanged(registry, kept)
    put_back(registry, kept)
    assert isinstance(registry["relu"], nn.ReLU)


class Configured(nn.Module):
    def __init__(self, writes):
        super().__init__()
        self.config, self.layer, self.writes = Frozen(2.0, depth=1), nn.Linear(4, 4), writes

    def forward(self, x):
        if self.writes:
            OrderedDict.__setitem__(self.config, "seen", x)
        return self.layer(x) * self.config["scale"]


@pytest.mark.parametrize("writes", [False, True])
def test_a_model_with_a_frozen_configuration_is_planned_and_keeps_it(writes):
    model, x = Configured(writes), torch.randn(2, 4)
    expected = model(x).detach()
    config = dict(model.config)
    graphs = [schedopt.import_model(model, (x,), training=training) for training in ("none", "sgd")]
    assert dict(model.config).keys() == config.keys()
    assert all(model.config[key] is value for key, value in config.items())
    assert graphs[0].num_ops < graphs[1].num_ops
    assert torch.equal(model(x).detach(), expected)
