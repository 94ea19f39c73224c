"""Device maps: every tensor of the model is in one module of the map, which is where most of its forward pass runs."""

import dataclasses
import json

import numpy as np
import pytest
from models.seeds import seeds
from schedopt import Device, GraphBuilder, Machine, Schedule, UsageError
from schedopt.core.graph.annotations import Annotations, Resident
from schedopt.core.programs.device_map import accelerate_names, check_map_output, check_weights, device_map


def graph_of(modules, parameters, runtimes=None, phases=()):
    """A chain of ops of these modules, and parameters by name with the op that reads each."""
    builder = GraphBuilder("model")
    for op, _ in enumerate(modules):
        builder.add_op(f"op{op}", inputs=[(op - 1, 0)] if op else [], outputs=[8], runtime=(runtimes or {}).get(op, 1))
    residents = tuple(Resident(name, "parameter", 8, op, (op,)) for name, op in parameters.items())
    notes = Annotations(tuple(modules), (), phases, residents)
    return dataclasses.replace(builder.build(), annotations=notes)


def placed(devices):
    """Return a schedule of a chain of ops with a device each."""
    items, sources, targets = [], [], []
    for op, device in enumerate(devices):
        if op and devices[op - 1] != device:
            items, sources, targets = [*items, ~(op - 1)], [*sources, devices[op - 1]], [*targets, device]
        items, sources, targets = [*items, op], [*sources, device], [*targets, device]
    return Schedule.from_steps(items, sources, targets)


def covering(devices, name):
    """Return the paths of a map that hold a parameter."""
    return [path for path in devices if not path or name == path or name.startswith(f"{path}.")]


def test_modules_on_one_device_are_named_by_the_module_around_them():
    modules = ["left.a", "left.b", "right.a", "right.b"]
    graph = graph_of(modules, {f"{module}.weight": op for op, module in enumerate(modules)})
    assert device_map(graph, placed([0, 0, 1, 1]), Machine.equal(2)).devices == {"left": 0, "right": 1}
    assert device_map(graph, placed([0, 0, 1, 0]), Machine.equal(2)).devices == {"left": 0, "right.a": 1, "right.b": 0}
    found = device_map(graph, placed([1, 1, 1, 1]), Machine.equal(2))
    assert (found.devices, found.moved_share) == ({"": 1}, 0.0)


def test_a_module_is_where_most_of_its_forward_pass_runs():
    modules, phases = ["net", "net", "net", "head"], ("forward", "forward", "backward", "forward")
    parameters = {"net.weight": 0, "head.weight": 3}
    graph = graph_of(modules, parameters, {0: 1, 1: 3, 2: 50, 3: 4}, phases)
    found = device_map(graph, placed([0, 1, 0, 0]), Machine.equal(2))
    assert found.devices == {"net": 1, "head": 0}
    assert found.moved_share == pytest.approx(1 / 8)


def test_a_module_with_parameters_of_its_own_holds_all_that_is_in_it():
    graph = graph_of(["att", "att.out", "head"], {"att.weight": 0, "att.out.weight": 1, "head.weight": 2}, {1: 5})
    assert device_map(graph, placed([0, 1, 0]), Machine.equal(2)).devices == {"att": 1, "head": 0}


def test_a_parameter_of_the_model_itself_is_where_its_inputs_are():
    graph = graph_of(["", "left", "right"], {"scale": 0, "left.weight": 1, "right.weight": 2})
    assert device_map(graph, placed([1, 0, 1]), Machine.equal(2)).devices == {"left": 0, "right": 1, "scale": 0}


def test_a_module_with_the_parameters_of_another_one_is_named_too():
    graph = graph_of(["tok", "body", "head.tied", "head.tied"], {"tok.weight": 0, "body.weight": 1})
    tok, body = graph.annotations.residents
    tied = dataclasses.replace(tok, readers=(0, 3))
    graph = dataclasses.replace(graph, annotations=dataclasses.replace(graph.annotations, residents=(tied, body)))
    assert device_map(graph, placed([0, 1, 0, 0]), Machine.equal(2)).devices == {"tok": 0, "body": 1, "head": 0}
    notes = dataclasses.replace(graph.annotations, modules=("tok", "body", "", ""))
    graph = dataclasses.replace(graph, annotations=notes)
    assert device_map(graph, placed([0, 1, 1, 1]), Machine.equal(2)).devices == {"": 0}  # the model itself reads both


def test_code_of_a_module_reads_from_one_device():
    """Embeddings that the model adds, and a block that adds what it is given to what a module in it gives."""
    modules = {"tok": (), "pos": (), "": (0, 1), "block.inner": (2,), "block": (2, 3), "head": (4,)}
    builder = GraphBuilder("model")
    for module, read in modules.items():
        builder.add_op(module or "sum", inputs=[(op, 0) for op in read], outputs=[8], runtime=1)
    parameters = ("tok", "pos", "block.inner", "head")
    residents = [Resident(f"{m}.weight", "parameter", 8, op, (op,)) for op, m in enumerate(modules) if m in parameters]
    graph = dataclasses.replace(builder.build(), annotations=Annotations(tuple(modules), (), (), tuple(residents)))
    items, targets = [0, 1, ~1, 2, ~2, 3, 4, 5], [0, 1, 0, 0, 1, 1, 1, 1]
    schedule = Schedule.from_steps(items, [0, 1, 1, 0, 0, 1, 1, 1], targets)
    assert device_map(graph, schedule, Machine.equal(2)).devices == {"tok": 0, "pos": 0, "block": 1, "head": 1}


def test_weights_that_only_the_code_around_them_reads_are_on_one_device():
    graph = graph_of(["a", "", "c", ""], {"a.weight": 0, "b.weight": 1, "c.weight": 2, "d.weight": 1})
    assert device_map(graph, placed([0, 1, 1, 1]), Machine.equal(2)).devices == {"a": 0, "b": 0, "c": 1, "d": 0}


def test_weights_that_a_map_has_no_room_for_are_refused():
    residents = [Resident(name, "parameter", 8, op) for op, name in enumerate(("left.weight", "right.weight"))]
    asked = "map.json", residents, (12, None), {0: 0, 1: "cpu"}
    check_weights(*asked, {"left": 0, "right": "cpu"})
    with pytest.raises(UsageError, match=r"^map\.json: 16 B of weights would be on 0, which has 12 B: a module is on"):
        check_weights(*asked, {"": 0})


@pytest.mark.parametrize("seed", seeds(20, quick=4))
def test_every_parameter_is_in_one_module_of_the_map(seed):
    random = np.random.default_rng(seed)
    modules = [".".join(random.choice(list("abc"), size=random.integers(1, 4))) for _ in range(12)]
    parameters = {f"{module}.weight": op for op, module in enumerate(modules)} | {"scale": 0, "b.unread": 11}
    found = device_map(graph_of(modules, parameters), placed(random.integers(0, 3, 12).tolist()), Machine.equal(3))
    assert all(len(covering(found.devices, name)) == 1 for name in parameters)
    assert json.loads(json.dumps(found.devices)) == found.devices


def test_what_has_no_modules_has_no_map():
    with pytest.raises(UsageError, match=r"name no modules with parameters, .*; import a PyTorch model"):
        device_map(graph_of([""], {}), placed([0]), Machine.equal(1))
    with pytest.raises(UsageError, match=r"net\.onnx: a device map is of the modules of a PyTorch model"):
        check_map_output("net.onnx", "map.json")
    with pytest.raises(UsageError, match=r"map\.pt2: .* the name must end in \.json"):
        check_map_output("module:function", "map.pt2")


def test_accelerate_numbers_its_accelerators_alone():
    kinds = ("cpu", "gpu", "host", "gpu", "npu")
    machine = Machine(tuple(Device(f"d{number}", kind) for number, kind in enumerate(kinds)))
    assert accelerate_names(machine) == {0: "cpu", 1: 0, 2: "cpu", 3: 1, 4: 2}
    assert accelerate_names(Machine.equal(2)) == {0: 0, 1: 1}
