"""A PyTorch model's device map from a schedule file, and what stands in the way of one."""

import json
import re
from importlib import import_module

import numpy as np
import pytest
import torch
from schedopt import Device, Machine, Problem, Schedule, UsageError
from schedopt.core.programs.device_map import device_map, write_device_map
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pipeline import apply
from schedopt.core.programs.runtime import load_runtime
from schedopt.core.solve.solve import solve

SOURCE = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), (torch.ones(3, 4),)
"""


@pytest.fixture
def name(tmp_path, monkeypatch):
    (tmp_path / "two_layers.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return "two_layers:model"


def write_plan(path, name, sent=True):
    """A schedule with the last layer on device 1."""
    graph = load_runtime(name, ImportOptions(), lambda text: None).graph("roofline", lambda text: None)
    last = min(op for op, module in enumerate(graph.annotations.modules) if module == "2")
    pointers, tensors = graph.inputs
    read = sorted({t for t in tensors[pointers[last] :].tolist() if graph.tensor_producer[t] < last})
    housed = Problem(graph, devices=2).graph
    homes = [(housed.op_names[graph.num_ops + n], resident.readers[0]) for n, resident in enumerate(housed.held)]
    steps = [{"op": name, "device": int(reader >= last)} for name, reader in homes]
    steps += [{"op": op, "device": int(number >= last)} for number, op in enumerate(graph.op_names)]
    at = len(homes) + last
    steps[at:at] = [{"tensor": graph.tensor_name(tensor), "from": 0, "to": 1} for tensor in read if sent]
    path.write_text(json.dumps({"devices": 2, "steps": steps}))
    return str(path)


def test_a_schedule_becomes_a_map_of_modules(name, tmp_path):
    schedule = write_plan(tmp_path / "plan.json", name)
    found = write_device_map(name, schedule, str(tmp_path / "map.json"), ImportOptions(), lambda text: None)
    assert json.loads((tmp_path / "map.json").read_text()) == found.devices == {"0": 0, "2": 1}
    with pytest.raises(UsageError, match=r"uses 2 devices, .* with apply --format device-map"):
        apply(name, schedule, str(tmp_path / "model.pt2"), ImportOptions(), lambda text: None)


def test_a_schedule_with_repeats_has_no_map(name, tmp_path):
    graph = load_runtime(name, ImportOptions(), lambda text: None).graph("roofline", lambda text: None)
    op = graph.op_names.index("relu")
    steps = [{"op": other, "device": 0} for other in (*graph.op_names[: op + 1], *graph.op_names[op:])]
    schedule = tmp_path / "again.json"
    schedule.write_text(json.dumps({"devices": 1, "recompute": True, "steps": steps}))
    with pytest.raises(UsageError, match=r"again\.json: op 'relu'.* runs again in this schedule, which a device map"):
        write_device_map(name, str(schedule), str(tmp_path / "map.json"), ImportOptions(), lambda text: None)
    assert not (tmp_path / "map.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "apart"), [("a", 4), ("b", 6)])
def test_what_a_map_puts_elsewhere_is_counted(name, tmp_path, weights, apart):
    options = ImportOptions(training="adam")
    graph = load_runtime(name, options, lambda text: None).graph("roofline", lambda text: None)
    devices, linked = (Device("a", "gpu"), Device("b", "gpu")), np.full((2, 2), 1e9)
    pins = {"*.exp_avg": "b", "*.exp_avg_sq": "a", "*.weight": weights, "*.bias": "a", "addmm*": "a", "relu": "a"}
    machine = Machine(devices, linked, np.zeros((2, 2)), pins=tuple(pins.items()))
    result = solve(Problem(graph, "runtime", machine=machine), evaluations=300)
    result.save(tmp_path / "plan.json")
    notes = []
    write_device_map(name, str(tmp_path / "plan.json"), str(tmp_path / "map.json"), options, notes.append)
    assert json.loads((tmp_path / "map.json").read_text()) == {"": 0}
    assert re.search(
        rf"map\.json: {apart} weights and states of the optimizer .[\d.,]+ [KMB]+i?B?. have", "".join(notes)
    )


@pytest.mark.slow
def test_a_module_whose_weights_have_their_home_on_the_host_is_there(name, tmp_path):
    graph = load_runtime(name, ImportOptions(), lambda text: None).graph("roofline", lambda text: None)
    pins = {"0.*": "host", "2.*": "gpu", "addmm*": "gpu", "relu": "gpu"}
    devices = Device("gpu", "gpu"), Device("host", "cpu")
    machine = Machine(devices, np.full((2, 2), 1e9), np.zeros((2, 2)), pins=tuple(pins.items()))
    solve(Problem(graph, "runtime", machine=machine), evaluations=300).save(tmp_path / "plan.json")
    notes = []
    write_device_map(name, str(tmp_path / "plan.json"), str(tmp_path / "map.json"), ImportOptions(), notes.append)
    assert json.loads((tmp_path / "map.json").read_text()) == {"0": "cpu", "2": 0}
    assert not any("forward pass" in note for note in notes)


RESIDUAL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos, self.head = nn.Embedding(50, 32), nn.Embedding(8, 32), nn.Linear(32, 50)
        self.blocks, self.scale = nn.ModuleList(Block() for _ in range(4)), nn.Parameter(torch.ones(32))

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.scale).sum() + ids.sum()

def model():
    torch.manual_seed(0)
    return Net().eval(), (torch.arange(16).reshape(2, 8),)
"""


def tagged(value, device):
    """Say of tensors which device they are on, since this machine has none but its processor."""

    def tag(tensor):
        if isinstance(tensor, torch.Tensor):
            tensor = tensor.detach().view_as(tensor)
            tensor.place = device
        return tensor

    return torch.utils._pytree.tree_map(tag, value)


class OneDevice(torch.overrides.TorchFunctionMode):
    """Refuses what reads tensors of several devices, as an accelerator does."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        read = torch.utils._pytree.tree_leaves((args, kwargs))
        places = {t.place for t in read if hasattr(t, "place") and t.dim()}
        assert len(places) < 2, f"{function.__name__} reads from {places}"
        result = function(*args, **(kwargs or {}))
        if places and isinstance(result, torch.Tensor):
            result.place = places.pop()
        return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_accelerate_runs_a_model_by_its_map(tmp_path, monkeypatch, seed):
    accelerate = pytest.importorskip("accelerate")
    (tmp_path / "residual.py").write_text(RESIDUAL)
    monkeypatch.syspath_prepend(tmp_path)
    graph = load_runtime("residual:model", ImportOptions(), lambda text: None).graph("roofline", lambda text: None)
    devices = dict(enumerate(np.random.default_rng(seed).integers(0, 2, graph.num_ops).tolist()))
    schedule = Schedule.from_steps(list(devices), list(devices.values()), list(devices.values()))
    found = device_map(graph, schedule, Machine.equal(2)).devices
    assert set(found.values()) == {0, 1}

    def put(module, name, device, *rest, **more):
        owner, _, leaf = name.rpartition(".")
        getattr(module.get_submodule(owner), leaf).place = device

    monkeypatch.setattr("accelerate.hooks.set_module_tensor_to_device", put)
    monkeypatch.setattr("accelerate.hooks.send_to_device", lambda value, device, **more: tagged(value, device))
    monkeypatch.setattr("accelerate.hooks.find_device", lambda value: 0)
    monkeypatch.setattr("accelerate.big_modeling.check_cuda_p2p_ib_support", lambda: True)
    model, inputs = import_module("residual").model()
    expected = model(*inputs)
    accelerate.dispatch_model(model, found)
    with OneDevice():
        assert torch.equal(model(*inputs), expected)
