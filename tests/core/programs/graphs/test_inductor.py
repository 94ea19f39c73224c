"""Inductor's buffer graphs: the peak that Inductor estimates, in every order, and the orders that it allows."""

import contextlib
import json
from pathlib import Path

import naive
import numpy as np
import pytest
from schedopt import FormatError, GraphError, Problem, Schedule
from schedopt.core.model.simulator import input_peak, simulate
from schedopt.core.programs.graphs import inductor
from schedopt.core.programs.options import ImportOptions

TRACE = Path(__file__).with_name("inductor_trace.log")
# What Inductor (PyTorch 2.13) logged for a small convolutional network's training step, and estimated for its order.
FORWARD, BACKWARD = ("model__0_forward_1", 47512), ("model__0_backward_3", 52008)


def read(path, graph=None):
    notes = []
    return inductor.read(str(path), ImportOptions(graph=graph), notes.append), notes


def document_of(name):
    with contextlib.suppress(StopIteration):
        return next(json.loads("".join(p)) for n, p in inductor._traced_graphs(TRACE) if n == name)
    raise AssertionError(name)


def written(tmp_path, content):
    path = tmp_path / "buffers.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(("name", "estimate"), [FORWARD, BACKWARD])
def test_the_peak_in_the_given_order_is_inductors_estimate(name, estimate):
    graph, notes = read(TRACE, name)
    assert input_peak(graph) == estimate
    assert graph.name == name
    assert graph.input_order.tolist() == list(range(graph.num_ops))
    kernels = [node["name"] for node in document_of(name)["nodes"]]
    assert [op for op in graph.op_names if op != "inputs"] == kernels
    assert len(notes) == 1
    assert "runtimes" in notes[0]


def test_json_log_and_folder_give_the_same_graph(tmp_path):
    from_log, _ = read(TRACE, BACKWARD[0])
    from_json, _ = read(written(tmp_path, document_of(BACKWARD[0])))
    (tmp_path / "rank_0").mkdir()
    (tmp_path / "rank_0" / "some.log").write_bytes(TRACE.read_bytes())
    from_folder, _ = read(tmp_path, BACKWARD[0])
    assert from_log == from_json == from_folder
    assert from_log.annotations.left_out == ("weights and the caller's inputs",)
    (tmp_path / "rank_1.log").write_bytes(TRACE.read_bytes())
    again, _ = read(tmp_path, f"{BACKWARD[0]}#2")
    assert again == from_log


def buffer(name, allocated, freed, deps=(), **roles):
    sizes = {"size_alloc": allocated, "size_free": freed, "is_input": False, "is_output": False}
    return {"name": name, **sizes, "deps": list(deps), **roles}


def document(nodes, *buffers):
    return {"nodes": [{"name": name, "buffer_names": made.split()} for name, made in nodes.items()], "buffers": buffers}


def test_inputs_are_there_before_ops_that_need_none():
    """Were the first two kernels free to run before the inputs are there, 160 bytes would do."""
    graph = inductor.buffer_graph(
        document(
            {"k0": "a", "k1": "b", "k2": "c"},
            *(buffer("x", 100, 100, is_input=True), buffer("a", 50, 50), buffer("b", 50, 50, ["a"])),
            buffer("c", 10, 10, ["b", "x"], is_output=True),
        ),
        *("g", "g"),
    )
    assert naive.least_peak(naive.plain_of(graph)) == 200


def test_parts_are_freed_one_by_one_and_the_whole_orders_what_needs_it():
    parts = (buffer("w", 9, 0), buffer("p", 0, 4, ["w"]), buffer("q", 0, 5, ["w"], is_output=True))
    graph = inductor.buffer_graph(
        document(
            {"k0": "w", "k1": "p", "k2": "q", "k3": "r", "k4": "s"},
            *(*parts, buffer("r", 1, 1, ["p"]), buffer("s", 3, 3, ["w"], is_output=True)),
        ),
        *("g", "g"),
    )
    steps = simulate(Problem(graph), Schedule.single_device(graph.input_order)).step_memory
    assert steps.tolist() == [9, 9, 9, 10, 8]
    pointers, predecessors = graph.predecessors
    assert predecessors[pointers[4] :].tolist() == [0]


class StopHere(Exception):
    """Ends a compilation before code is generated."""


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """Return a function that lets Inductor plan a program: its document, nodes, and estimate of an order by names."""
    import torch

    memory = pytest.importorskip("torch._inductor.memory")
    import functorch.compile
    from torch._inductor.compile_fx import compile_fx_inner
    from torch.fx.experimental.proxy_tensor import make_fx

    export = memory.export_graph_for_simulator
    logged, plans = [], []

    def spy(nodes, freeable, fused, graph_inputs, graph_outputs):
        export(nodes, freeable, fused, graph_inputs, graph_outputs)
        by_name = {node.get_name(): node for node in nodes}

        def estimate(order):
            return memory.estimate_peak_memory([by_name[name] for name in order], freeable, graph_outputs)[0]

        plans.append((json.loads(logged[-1]), nodes, estimate))
        raise StopHere

    def plan(function, *inputs):
        settings = {"reorder_for_peak_memory_debug": True, "fx_graph_cache": False, "cpp.vec_isa_ok": False}
        with torch._inductor.config.patch(settings), pytest.raises(Exception, match="StopHere"):
            compile_fx_inner(make_fx(function, tracing_mode="fake")(*inputs), list(inputs))
        return plans[0]

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(memory, "export_graph_for_simulator", spy)
    monkeypatch.setattr(functorch.compile, "get_graph_being_compiled", lambda: "graph")
    monkeypatch.setattr(torch._logging, "trace_structured", lambda *a, payload_fn, **k: logged.append(payload_fn()))
    return plan


def in_place(x, w, state):
    """A buffer of the program and an input are written in place after others have read them."""
    import torch

    y = x @ w
    z = y @ w
    other = y @ x
    y.index_put_((torch.tensor([0, 2]),), x[:2], accumulate=True)
    later = y @ other
    total = state @ w
    state.add_(z[0])
    return later, total @ z


def many_outputs(x, w, state):
    """Ops of several outputs, one of which is unused, another a result."""
    import torch

    values, where = torch.sort(x @ w, 1)
    pooled, _ = torch.ops.aten.max_pool2d_with_indices((values @ x)[None, None], [2, 2])
    kept, places = torch.topk(values @ w, 4)
    return where, pooled.sum() * kept, x @ kept, places + 1, state @ w


@pytest.mark.parametrize("function", [pytest.param(in_place, marks=pytest.mark.slow), many_outputs])
def test_every_order_has_the_peak_of_inductors_estimate_and_is_one_it_allows(function, planned):
    import torch

    plan, nodes, estimate = planned(function, torch.randn(8, 8), torch.randn(8, 8), torch.randn(8))
    graph = inductor.buffer_graph(plan, "live", "live")
    problem, plain = Problem(graph), naive.plain_of(graph)
    rng = np.random.default_rng(50)
    peaks = set()
    for order in [graph.input_order.tolist(), *(naive.random_order(rng, plain) for _ in range(30))]:
        kernels = [graph.op_names[op] for op in order if graph.op_names[op] != "inputs"]
        place = {name: at for at, name in enumerate(kernels)}
        for node in nodes:
            for before in node.mpi_node.pred_nodes:
                assert place[before.get_name()] < place[node.get_name()]
        peaks.add(estimate(kernels))
        assert simulate(problem, Schedule.single_device(np.array(order))).peak == estimate(kernels)
    assert len(peaks) > 1


def test_a_log_of_several_graphs_asks_which():
    with pytest.raises(FormatError, match=f"holds 2 graphs; choose one by --graph: {FORWARD[0]}, {BACKWARD[0]}"):
        read(TRACE)
    with pytest.raises(FormatError, match=f"no graph 'x'; choose from {FORWARD[0]}"):
        read(TRACE, "x")


def test_a_log_without_graphs_says_how_to_get_one(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(TRACE.read_text().replace("_fused", "_other"))
    with pytest.raises(FormatError, match=r"no buffer graph .*_peak_memory_debug = True"):
        read(log)


def test_a_truncated_log_names_the_graph(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(TRACE.read_text()[:-200])
    with pytest.raises(FormatError, match=f"graph '{BACKWARD[0]}': the log is truncated"):
        read(log, BACKWARD[0])
    assert read(log, FORWARD[0])[0].num_ops


def changed(**fields):
    """Return a document of two kernels, with fields of its last buffer changed; None drops one."""
    last = {**buffer("b", 8, 8, ["a"]), **fields}
    return document({"op0": "a", "op1": "b"}, buffer("a", 8, 8), {k: v for k, v in last.items() if v is not None})


def edited(edit):
    damaged = changed()
    edit(damaged)
    return damaged


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (changed(deps=["z"]), "buffer 'b' needs 'z', which is not in the file"),
        (changed(deps=None), "another version: it has no 'deps'"),
        (changed(size_alloc=float("inf")), "another version: size_alloc is inf"),
        (changed(size_free=1.5), "size_free is 1.5"),
        (changed(is_input="false"), "is_input is 'false'"),
        (changed(deps="b"), "deps is 'b'"),
        (changed(deps=[["a"]]), r"buffer 'b' needs '\['a'\]', which is not in the file"),
        (changed(size_alloc=9), "buffer 'b' allocates 9 bytes but frees 8"),
        (changed(size_alloc=0), "buffer 'b' is freed but never allocated, and is a part of 0 buffers"),
        (changed(size_free=0), "buffer 'b' allocates 8 bytes, but its parts free 0"),
        (changed(name="a"), "a node or a buffer is there twice"),
        (changed(name="c"), "node 'op1' has no buffers"),
        (edited(lambda d: d["nodes"].pop()), "no node makes the buffer 'b'"),
        (edited(lambda d: d["nodes"][0]["buffer_names"].append("b")), "there twice"),
        (edited(lambda d: d.update(nodes=[])), "no node makes"),
        (edited(lambda d: d.update(nodes=None)), "another version"),
        (edited(lambda d: d.pop("buffers")), "it has no 'buffers'"),
        ({"nodes": [[]], "buffers": []}, "another version"),
    ],
)
def test_damaged_documents_are_refused(tmp_path, damaged, message):
    with pytest.raises(FormatError, match=message):
        read(written(tmp_path, damaged))


def test_a_cycle_names_its_ops(tmp_path):
    cyclic = edited(lambda d: d["buffers"][0].update(deps=["b"]))
    with pytest.raises(GraphError, match=r"cycle: op. -> op. -> op."):
        read(written(tmp_path, cyclic))
