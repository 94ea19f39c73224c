"""ONNX programs in other orders: predicted against real memory, the order that ONNX Runtime keeps, equal results."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from models.onnx_models import branches, model_of, random_calls, random_model, save, value
from models.orders import random_order, write_schedule
from onnx import TensorProto, helper
from schedopt import FormatError, ProgramError, Schedule, ScheduleError
from schedopt.core.model.simulator import simulate
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.onnx import session
from schedopt.core.programs.onnx.graph import VIEWS, WITHOUT_KERNEL
from schedopt.core.programs.onnx.runtime import IN_PLACE, graph_of, load_program, reorder
from schedopt.core.programs.onnx.session import kernel_times, random_inputs, session_of, session_options
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pipeline import Observer, apply, measure
from schedopt.core.programs.runtime import load_runtime, problem_of

PAGE = 4096
SIDE = 128
TENSOR = 4 * 4 * SIDE * SIDE
CHILD = """
import json, sys
from schedopt.core.programs.onnx.session import run_each, run_order
for path, orders in json.load(sys.stdin).items():
    print(json.dumps([run_each(path, {}), [run_order(path, {}, order) for order in orders]]))
"""
COPIES = {"Abs", "Neg", "Exp", "Sqrt", "Erf", "Floor", "HardSwish", "Dropout", "BatchNormalization", "Transpose", "Add"}
FEW_OPS = ["Add", "Relu", "Reshape"]  # one of each kind: it has a buffer of its own, writes over its input, is a view
ATTRIBUTES = {
    "Cast": {"to": onnx.TensorProto.INT32},
    "Transpose": {"perm": [0, 2, 1]},
    "Softmax": {"axis": -1},
    "LogSoftmax": {"axis": -1},
}
OPERANDS = {
    **{"Reshape": ["shape"], "Squeeze": ["axis"], "Unsqueeze": ["axis"], "Add": ["one"]},
    **{"Clip": ["one", "one"], "BatchNormalization": ["vector"] * 4},
}


def run_all(orders_of_path):
    """Costs and runs of many programs, measured in one other process."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(orders_of_path),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(orders_of_path, map(json.loads, done.stdout.splitlines()), strict=True))


def predicted_peak(graph, order):
    """The peak beside persistent bytes."""
    peak = simulate(problem_of(graph, order), Schedule.single_device(np.array(order))).peak
    return int(peak - graph.persistent.sum())


def with_repeats(graph, order):
    """The order in which each op that has several readers and may run again does so after the first of them."""
    repeated, (pointers, readers) = list(order), graph.successors
    for op in np.flatnonzero(~graph.runs_once).tolist():
        after = sorted(repeated.index(reader) for reader in readers[pointers[op] : pointers[op + 1]].tolist())
        if len(after) > 1:
            repeated.insert(after[0] + 1, op)
    return repeated


def single_op_model(op):
    """A fresh tensor, the op that alone reads it, and a reader of what the op gives."""
    first = helper.make_node("Transpose", ["x"], ["a"], perm=[0, 1, 3, 2] if op == "Squeeze" else [0, 2, 1])
    node = helper.make_node(op, ["a", *OPERANDS.get(op, [])], ["b"], **ATTRIBUTES.get(op, {}))
    constants = {
        "shape": np.array([SIDE, -1], np.int64),
        "axis": np.array([0], np.int64),
        "one": np.array(0.5, np.float32),
        "vector": np.ones(SIDE, np.float32),
    }
    used = {name: constants[name] for name in OPERANDS.get(op, [])}
    shape = [1, 4, SIDE, SIDE] if op == "Squeeze" else [4, SIDE, SIDE]
    last = helper.make_node("ReduceMax", ["b"], ["y"], keepdims=0)
    element = onnx.TensorProto.INT32 if op == "Cast" else onnx.TensorProto.FLOAT
    return model_of([first, node, last], [value("x", shape)], [value("y", [], element)], used)


@pytest.mark.parametrize(
    "ops", [FEW_OPS, pytest.param(sorted(VIEWS | IN_PLACE | COPIES), marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_ops_share_buffers_as_onnx_runtime_does(tmp_path, ops):
    """Views and ops in place take no buffer of their own when run, and the others do: nothing is in the wrong table."""
    orders, graphs = {}, {}
    for op in ops:
        path = save(tmp_path / f"{op}.onnx", single_op_model(op))
        orders[path] = [None]
    for path, (costs, (run,)) in run_all(orders).items():
        graph = graph_of(load_program(path, {}), measured={name: tuple(cost) for name, cost in costs.items()})
        graphs[path] = graph
        assert predicted_peak(graph, range(graph.num_ops)) == pytest.approx(run["peak"], abs=4 * PAGE), path
    taken = {Path(path).stem: predicted_peak(graph, range(graph.num_ops)) for path, graph in graphs.items()}
    assert all(taken[op] < 1.9 * TENSOR for op in VIEWS & set(ops))
    assert all(taken[op] >= 2 * TENSOR for op in COPIES & set(ops))


@pytest.mark.slow
def test_memory_of_random_orders_is_predicted(tmp_path):
    """Predictions for random programs in random orders are never too small, mostly exact, and results always equal."""
    random = np.random.default_rng(1)
    orders, programs = {}, {}
    for seed in range(8):
        path = save(tmp_path / f"{seed}.onnx", random_model(seed))
        programs[path] = load_program(path, {})
        graph = graph_of(programs[path])
        drawn = [list(range(graph.num_ops)), *(random_order(graph, random) for _ in range(4))]
        orders[path] = drawn + [with_repeats(graph, order) for order in drawn[1:3]]
    exact = []
    for path, (costs, runs) in run_all(orders).items():
        graph = graph_of(programs[path], measured={name: tuple(cost) for name, cost in costs.items()})
        for order, run in zip(orders[path], runs, strict=True):
            predicted = predicted_peak(graph, order)
            slack = PAGE * graph.num_tensors
            assert run["peak"] <= predicted + slack
            assert run["digests"] == runs[0]["digests"]
            exact.append(run["peak"] >= predicted - slack)
    assert np.mean(exact) > 0.9


def test_onnx_runtime_follows_the_file(tmp_path):
    """In priority order the profile shows the kernels in the order of the file, in the default order it does not."""
    program = load_program(save(tmp_path / "model.onnx", branches()), {})
    graph, followed = graph_of(program), {True: [], False: []}
    for seed, keeps_order in itertools.product(range(5), followed):
        order = random_order(graph, seed)
        options = session_options(str(tmp_path), keeps_order=keeps_order)
        loaded = session_of(reorder(program, order), tmp_path, options)
        loaded.run(None, random_inputs(program))
        followed[keeps_order].append([name for name, _ in kernel_times(loaded)] == [graph.op_names[op] for op in order])
    assert all(followed[True])
    assert not all(followed[False])


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("seed", range(6))
def test_program_order_is_onnx_runtimes_own(seed, element, tmp_path, monkeypatch):
    """Whatever functions call, ops without a kernel are defined by, branches take and loading casts."""
    monkeypatch.setattr(session, "as_loaded", lambda program: session.load_file(**program.question))
    monkeypatch.setattr(session, "observe", lambda program: {"types": {}, "workspaces": {}})
    program = load_program(save(tmp_path / "model.onnx", random_calls(seed, element)), {})
    loaded = session_of(program.model, tmp_path, session_options(str(tmp_path), keeps_order=False))
    loaded.run(None, random_inputs(program))
    ran = [name for name, _ in kernel_times(loaded) if name in program.names]
    assert ran == [name for name in program.names if name in ran]
    assert len(ran) > 4


def test_ops_without_a_kernel_are_those_that_onnx_runtime_defines():
    kernels = onnxruntime.capi.onnxruntime_pybind11_state.get_all_opkernel_def()
    known = {kernel.op_name for kernel in kernels if (kernel.domain, kernel.provider) == ("", "CPUExecutionProvider")}
    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain]
    defined = {s.name for s in schemas if s.has_function or s.has_context_dependent_function}
    assert defined - known == WITHOUT_KERNEL


def depth_first(graph):
    """The order that finishes one branch before it starts the next."""
    return sorted(range(graph.num_ops), key=lambda op: graph.op_names[op][-2] if op < graph.num_ops - 3 else f"z{op}")


def test_apply_changes_the_order_alone(tmp_path):
    """The new file has the schedule's order, and everything else as it was; each constant is just before its reader."""
    model = branches()
    model.metadata_props.add(key="author", value="tests")
    del model.graph.initializer[0]  # the shape, now made by a node
    shape = helper.make_node("Constant", [], ["shape"], "shape", value_ints=[1, -1])
    model.graph.node.insert(0, shape)
    path = save(tmp_path / "model.onnx", model)
    graph = read_model(path, ImportOptions(), print)
    order = random_order(graph, 3)
    output = tmp_path / "ordered.onnx"
    apply(path, write_schedule(tmp_path / "s.json", graph, order), str(output), ImportOptions(), print)
    ordered = onnx.load(output)
    names = [node.name for node in ordered.graph.node]
    assert [name for name in names if name != "shape"] == [graph.op_names[op] for op in order]
    assert names.index("shape") == names.index("flat") - 1
    key = lambda node: node.output[0]  # noqa: E731
    assert sorted(ordered.graph.node, key=key) == sorted(model.graph.node, key=key)
    for changed in (ordered, model):
        changed.graph.ClearField("node")
    assert ordered == model


@pytest.mark.slow
def test_external_data_are_kept(tmp_path):
    """The new file finds its tensors wherever it is written, and another model's data are never overwritten."""
    path = tmp_path / "model.onnx"
    onnx.save_model(branches(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    graph = read_model(str(path), ImportOptions(), print)
    schedule = write_schedule(tmp_path / "s.json", graph, depth_first(graph))
    folder = tmp_path / "other"
    folder.mkdir()
    for output in (tmp_path / "ordered.onnx", folder / "ordered.onnx"):
        apply(str(path), schedule, str(output), ImportOptions(), print)
        assert (output.parent / "weights.bin").read_bytes() == (tmp_path / "weights.bin").read_bytes()
        assert read_model(str(output), ImportOptions(), print).persistent.sum() == graph.persistent.sum()
    assert measure(str(output), [], 1, ImportOptions(), Observer(print))[0].is_equal
    (folder / "weights.bin").write_bytes(b"another model's")
    (folder / "ordered.onnx").unlink()
    with pytest.raises(FormatError, match=r"weights.bin: is not the data of .*model.onnx; write .* another folder"):
        apply(str(path), schedule, str(folder / "ordered.onnx"), ImportOptions(), print)
    assert sorted(file.name for file in folder.iterdir()) == ["weights.bin"]


@pytest.mark.slow
def test_different_results_are_never_written(tmp_path):
    """An unseeded random node draws other numbers at another place; nothing is left on disk."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "negate"),
        helper.make_node("RandomNormalLike", ["x"], ["b"], "noise"),
        helper.make_node("Abs", ["x"], ["c"], "positive"),
        helper.make_node("Sum", ["a", "b", "c"], ["y"], "sum"),
    ]
    path = save(tmp_path / "model.onnx", model_of(nodes, [value("x", [8])], [value("y", [8])]))
    graph = read_model(path, ImportOptions(), print)
    schedule = write_schedule(tmp_path / "s.json", graph, [1, 0, 2, 3])
    with pytest.raises(ScheduleError, match=r"output .y. would not be bitwise .* node 'noise' .* draws random numbers"):
        apply(path, schedule, str(tmp_path / "new.onnx"), ImportOptions(), print)
    assert not (tmp_path / "new.onnx").exists()
    assert not measure(path, [schedule], 1, ImportOptions(), Observer(print))[1].is_equal
    runtime = load_runtime(path, ImportOptions(), print)
    assert runtime.results(reorder(runtime.program, [2, 1, 0, 3])) == runtime.results(None)


@pytest.mark.slow
def test_what_onnx_runtime_cannot_run_is_one_sentence(tmp_path):
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"], "gather")]
    model = model_of(nodes, [value("x", [4])], [value("y", [1])], {"i": np.array([7], np.int64)})
    path = save(tmp_path / "model.onnx", model)
    graph = read_model(path, ImportOptions(), print)
    schedule = write_schedule(tmp_path / "s.json", graph, [0])
    with pytest.raises(ProgramError, match=r"model\.onnx: ONNX Runtime cannot run .*gather"):
        apply(path, schedule, str(tmp_path / "new.onnx"), ImportOptions(), print)
    with pytest.raises(ProgramError, match="gather"):
        measure(path, [], 1, ImportOptions(), Observer(print))


@pytest.mark.slow
def test_a_result_that_nobody_reads_is_held_to_the_end(tmp_path):
    shape = [400, 1600]
    nodes = [
        helper.make_node("Dropout", ["x"], ["kept", "mask"], "dropout"),
        helper.make_node("Exp", ["x"], ["unread"], "dead"),
        helper.make_node("Flatten", ["kept"], ["view"], "dead_view"),
        helper.make_node("Exp", ["kept"], ["a"], "first"),
        helper.make_node("Exp", ["a"], ["b"], "second"),
        helper.make_node("Exp", ["b"], ["y"], "third"),
    ]
    path = save(tmp_path / "m.onnx", model_of(nodes, [value("x", shape)], [value("y", shape)]))
    (row,) = measure(path, [], 1, ImportOptions(), Observer(print))
    big = 400 * 1600
    assert row.predicted_peak >= 4 * 4 * big + big  # the input, the unread, the mask, and two of the chain
    assert abs(row.error) < 0.01
