"""Execution traces as graphs: the same memory as an exported program's, whatever the program is."""

import dataclasses
import gzip
import json

import numpy as np
import pytest
import schedopt
import torch
from models import torch_models
from schedopt import FormatError
from schedopt.core.model.simulator import input_peak
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.options import ImportOptions
from torch import nn
from torch.profiler import ExecutionTraceObserver
from torch.utils import _pytree as pytree

FORWARD = ["branches", "branches_in_training", "attention", "recurrent", "convolutions", "linear"]
TRAINING = ["branches_in_training", "attention", "recurrent", "convolutions"]


def recorded(path, run):
    observer = ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    run()
    observer.stop()
    observer.unregister_callback()
    return str(path)


def imported(path):
    notes = []
    return read_model(str(path), ImportOptions(), notes.append), notes


def without_workspace(graph):
    return dataclasses.replace(graph, workspace=np.zeros_like(graph.workspace))


def call(model, inputs):
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORWARD)
def test_memory_of_a_forward_pass_is_that_of_the_exported_program(tmp_path, name):
    model, inputs = getattr(torch_models, name)()
    exported = schedopt.import_model(model, inputs)

    def run():
        with torch.no_grad():
            call(model, inputs)

    traced, _ = imported(recorded(tmp_path / "trace.json", run))
    assert traced.persistent.sum() == exported.persistent.sum()
    assert input_peak(without_workspace(traced)) == input_peak(exported)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINING)
def test_memory_of_a_training_step_is_that_of_the_exported_step(tmp_path, name):
    model, inputs = getattr(torch_models, name)()
    model.train()
    exported = schedopt.import_model(model, inputs, training="sgd")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def run():
        leaves = pytree.tree_leaves(call(model, inputs))
        loss = sum(leaf.mean() for leaf in leaves if leaf.requires_grad) if len(leaves) > 1 else leaves[0].mean()
        del leaves
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # what the exported step returns

    traced, _ = imported(recorded(tmp_path / "trace.json", run))
    assert traced.persistent.sum() == exported.persistent.sum()
    assert input_peak(without_workspace(traced)) == input_peak(exported)
    assert set(traced.annotations.phases) == {"forward", "backward", "update"}


class Broken(nn.Module):
    """Decides by a value, so that no export stands for it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        y = self.layer(x)
        return y.relu() if y.sum().item() > 0 else y.tanh()


def test_a_program_that_cannot_be_exported_is_imported_and_solved(tmp_path):
    model, x = Broken(), torch.ones(2, 8)
    with pytest.raises(schedopt.ProgramError, match="reads the value of a tensor"):
        schedopt.import_model(model, x)
    graph, notes = imported(recorded(tmp_path / "trace.json", lambda: model(x)))
    assert any("1 ops hand values to Python" in note for note in notes)
    result = schedopt.solve(graph, method="input")
    assert result.value >= 2 * 8 * 4 * 2


def test_a_storage_of_which_there_are_views_alone_is_not_counted(tmp_path):
    x, unread = torch.ones(4), torch.ones(9)
    graph, _ = imported(recorded(tmp_path / "t.json", lambda: (unread.view(3, 3), x.relu())))
    assert graph.persistent.sum() == 16
    assert sorted((held.size, held.op) for held in graph.annotations.residents) == [(16, 0), (36, -1)]


def test_kind_is_told_by_content_plain_or_gzip_whatever_the_name(tmp_path):
    path = recorded(tmp_path / "t.json", lambda: torch.ones(4) + torch.ones(4))
    (tmp_path / "packed").write_bytes(gzip.compress((tmp_path / "t.json").read_bytes()))
    assert imported(path)[0] == imported(tmp_path / "packed")[0]


def test_schema_1_0_reads_as_1_1(tmp_path):
    model, inputs = torch_models.branches()
    path = recorded(tmp_path / "new.json", lambda: model(*inputs))
    document = json.loads((tmp_path / "new.json").read_text())
    document["schema"] = "1.0.1"
    for node in document["nodes"]:
        for kind in ("inputs", "outputs"):
            values = node.pop(kind)
            node |= {kind: values["values"], f"{kind[:-1]}_shapes": values["shapes"]}
            node[f"{kind[:-1]}_types"] = values["types"]
        node["parent"] = node.pop("ctrl_deps")
        node |= {attribute["name"]: attribute["value"] for attribute in node.pop("attrs")}
    (tmp_path / "old.json").write_text(json.dumps(document))
    assert imported(tmp_path / "old.json")[0] == imported(path)[0]


# Traces by hand: a tensor is (storage, elements), of 4 bytes an element.


def node(id_, name, inputs=(), outputs=(), schema=None, parent=1, device="cpu"):
    def values(tensors):
        return {
            "values": [[0, at, 0, count, 4, device] for at, count in tensors],
            "shapes": [[count] for _, count in tensors],
            "types": ["Tensor(float)"] * len(tensors),
        }

    schema = f"{name}(Tensor self) -> Tensor" if schema is None else schema
    given = {"inputs": values(inputs), "outputs": values(outputs)}
    return {"id": id_, "name": name, "ctrl_deps": parent, **given, "attrs": [{"name": "op_schema", "value": schema}]}


def graph_of(tmp_path, *nodes):
    path = tmp_path / "hand.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": [node(1, "[process]", schema=""), *nodes]}))
    return imported(path)


def edges(graph):
    sources, targets = graph.edges
    return {(graph.op_names[a], graph.op_names[b]) for a, b in zip(sources, targets, strict=True)}


def test_an_address_used_again_is_another_storage(tmp_path):
    graph, _ = graph_of(
        tmp_path,
        node(2, "aten::one", [(7, 4)], [(8, 100)]),
        node(3, "aten::two", [(8, 100)], [(9, 4)]),
        node(4, "aten::three", [(7, 4)], [(8, 200)]),
        node(5, "aten::four", [(8, 200)], [(10, 4)]),
    )
    assert edges(graph) == {("one", "two"), ("three", "four")}
    sizes = {graph.tensor_name(t): int(size) for t, size in enumerate(graph.tensor_size)}
    assert (sizes["one:0"], sizes["three:0"]) == (400, 800)
    assert graph.persistent.tolist() == [16, 0, 0, 0]
    assert [graph.tensor_name(t) for t in np.flatnonzero(graph.is_final)] == ["two:0", "four:0"]


def test_a_write_in_place_waits_for_readers_and_later_readers_for_it(tmp_path):
    graph, _ = graph_of(
        tmp_path,
        node(2, "aten::make", [(7, 4)], [(8, 4)]),
        node(3, "aten::before", [(8, 4)], [(9, 4)]),
        node(4, "aten::add_", [(8, 4)], [(8, 4)], "aten::add_(Tensor(a!) self) -> Tensor(a!)"),
        node(5, "aten::after", [(8, 4)], [(10, 4)]),
        node(6, "aten::mul_", [(7, 4)], [(7, 4)], "aten::mul_(Tensor(a!) self) -> Tensor(a!)"),
    )
    assert {("before", "add_"), ("add_", "after"), ("make", "mul_")} <= edges(graph)
    assert ("before", "after") not in edges(graph)
    assert graph.buffers.size.tolist().count(16) == 3  # make, before, after: the others write in place
    sizes = {graph.tensor_name(t): int(size) for t, size in enumerate(graph.tensor_size)}
    assert sizes["add_:0"] == 16  # what a copy of it takes
    (resident,) = graph.annotations.residents
    assert (resident.readers, resident.writers, resident.size) == ((0,), (4,), 16)


def test_collectives_keep_their_order_and_may_write_what_they_take(tmp_path):
    graph, _ = graph_of(
        tmp_path,
        node(2, "aten::make", [(7, 4)], [(8, 4)]),
        node(3, "aten::other", [(7, 4)], [(9, 4)]),
        node(4, "c10d::allreduce_", [(9, 4)], [(9, 4)], "c10d::allreduce_(Tensor[] tensors) -> Tensor[]"),
        node(5, "record_param_comms", [(8, 4)], [(8, 4)], ""),
        node(6, "nccl:all_reduce", [(8, 4)], [], "", parent=5),
        node(7, "aten::after", [(9, 4)], [(10, 4)]),
    )
    assert graph.op_names == ("make", "other", "c10d::allreduce_", "record_param_comms", "after")
    assert {("c10d::allreduce_", "record_param_comms"), ("c10d::allreduce_", "after")} <= edges(graph)


def test_memory_inside_an_op_is_its_workspace(tmp_path):
    graph, _ = graph_of(
        tmp_path,
        node(2, "aten::whole", [(7, 4)], [(8, 10)]),
        node(3, "aten::empty", [], [(20, 50)], parent=2),
        node(4, "aten::inner", [(20, 50)], [(21, 30)], parent=2),
        node(5, "aten::empty", [], [(20, 60)], parent=2),
        node(6, "aten::empty", [], [(8, 10)], parent=2),
    )
    assert graph.num_ops == 1
    assert graph.workspace.tolist() == [4 * (50 + 30)]
    assert graph.tensor_size.tolist() == [40]


def test_only_one_device_is_counted_and_the_others_are_told(tmp_path):
    graph, notes = graph_of(
        tmp_path,
        node(2, "aten::make", [], [(8, 400)], device="cuda:0"),
        node(3, "aten::copy", [(8, 400)], [(9, 10)], device="cpu"),
    )
    assert graph.tensor_size.tolist() == [1600, 0]
    assert any("40 B on other devices" in note for note in notes)


def test_numbers_of_python_are_no_tensors(tmp_path):
    graph, _ = imported(recorded(tmp_path / "t.json", lambda: (torch.ones(4) + 0.5) * 2.0))
    assert graph.persistent.sum() == 0


def damaged(document):
    def spoil(**changes):
        return {**document, **changes}

    nodes = document["nodes"]
    return {
        "of schema": spoil(schema="2.0"),
        "no schema and nodes": {"schema": "1.1.1", "nodes": 3, "edges": []},
        "damaged": spoil(nodes=[{**nodes[0], "inputs": {"values": [1]}}]),
        "is damaged": spoil(nodes=[{**nodes[0], "id": -4}]),
        "two nodes have the id": spoil(nodes=[nodes[0], nodes[0]]),
        "began later": spoil(nodes=[node(2, "a", parent=3), node(3, "b", parent=2)]),
        "no op in the trace": spoil(nodes=[]),
    }


@pytest.mark.parametrize("message", sorted(damaged({"nodes": [node(2, "a")]})))
def test_damaged_traces_are_refused_in_a_sentence(tmp_path, message):
    document = {"schema": "1.1.1", "nodes": [node(2, "aten::a", [(1, 4)], [(2, 4)])]}
    (tmp_path / "t.json").write_text(json.dumps(damaged(document)[message]))
    with pytest.raises(FormatError, match=message):
        imported(tmp_path / "t.json")
