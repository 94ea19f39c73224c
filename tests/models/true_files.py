"""Small true files of every format that is read, and how each is read, for tests and campaigns that damage them."""

import gzip
import json
import pickle
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import schedopt
from models.allocator_traces import small_snapshot
from models.small_graphs import sketch
from schedopt import Problem, ProgramError, ScheduleError, read_graph, read_schedule
from schedopt.core.files.costgraph import format_graph
from schedopt.core.files.schedule_json import read_imported
from schedopt.core.programs.graphs.attributed_graph import format_dot, format_node_link
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.tflite.interpreter import Costs
from schedopt.core.solve.solve import solve

INDUCTOR = {
    "nodes": [{"name": "op0", "buffer_names": ["buf0"]}, {"name": "op1", "buffer_names": ["buf1"]}],
    "buffers": [
        {"name": "arg0", "size_alloc": 16, "size_free": 16, "is_input": True, "is_output": False, "deps": []},
        {"name": "buf0", "size_alloc": 8, "size_free": 8, "is_input": False, "is_output": False, "deps": ["arg0"]},
        {"name": "buf1", "size_alloc": 4, "size_free": 4, "is_input": False, "is_output": True, "deps": ["buf0"]},
    ],
}
WORKFLOW = {
    "workflow": {
        "tasks": [
            {"name": "a", "runtime": 1.5, "files": [{"link": "output", "name": "x", "size": 8}]},
            {"name": "b", "runtime": 2, "parents": ["a"], "files": [{"link": "input", "name": "x", "size": 8}]},
        ]
    }
}
CONFIG = "seed: 3\nphases:\n- epochs: 2\n  nodes: [10, 20]\n  decay: 1e-1\n"


@cache
def diamond():
    """Return a graph with views, control edges, times and remarks."""
    ops = "start -> 10 4 us=1.25 keep=3; wide: start -> 8 us=2 work=5; view: start.1 -> 4@0 us=0.5 once"
    return sketch(f"{ops}; join: wide view !start -> 1f 2 us=1", "diamond")


def _import(path):
    verify_order(read_model(path, ImportOptions(), lambda text: None))


def verify_order(graph):
    """Solve a graph that was read in its input order, as every command does first; large graphs are left out."""
    if graph.num_ops < 1000:
        solve(Problem(graph), "input")


def _graph(path):
    verify_order(read_graph(path))


def _schedule(path):
    read_imported(path)
    loaded = read_schedule(path, diamond(), force=True)
    try:
        loaded.verify()
    except ScheduleError:
        return


def _compared(path):
    """Return the values of a comparison that goes on from a file."""
    comparison = schedopt.compare(diamond(), ["input", "lpmf"], resume=path)
    json.loads(comparison.json(), parse_constant=int), comparison.summary(True), comparison.csv()
    return [(cell.value, cell.lower_bound, cell.status, cell.ops) for cell in comparison.cells]


def _front(path):
    """Return the values of a front that goes on from a file."""
    front = schedopt.pareto(diamond(), points=2, evaluations=20, resume=path)
    json.loads(front.json(), parse_constant=int), front.summary(), front.csv()
    return [(point.peak_memory, point.time, point.peak_bound, point.time_bound) for point in front.points]


def _resumed(run):
    """Return the lines that a run keeps, and a reader which does the run again from a file: it finds the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        known = run(path)

        def read(path):
            assert run(path) == known

        return [path.read_bytes()], read


def _checkpoint(path):
    """Return the state of a training that goes on from a file, or begins without it."""
    from schedopt.policies.topoformer.network import Network, NetworkParameters
    from schedopt.policies.topoformer.training import TrainingParameters
    from schedopt.policies.training.run_folder import CHECKPOINT, Checkpoint, Place, read_checkpoint, tensors_of
    from torch import manual_seed, optim

    manual_seed(0)
    parameters = TrainingParameters(network=NetworkParameters(width=8, layers=1, heads=2))
    networks = {"network": Network(parameters.network)}
    optimiser, file = optim.Adam(networks["network"].parameters()), Path(path).with_name(CHECKPOINT)
    if Path(path).exists():
        file.write_bytes(Path(path).read_bytes())
        found = read_checkpoint(file.parent, TrainingParameters)
        found.check_same(parameters, "")
        found.restore(networks, optimiser)
        return (
            found.place,
            found.measured,
            found.validation,
            {name: value.tolist() for name, value in found.tensors.items()},
        )
    sum(weight.sum() for weight in networks["network"].parameters()).backward()
    optimiser.step()
    tensors, place = tensors_of(networks, optimiser), Place(1, 2, 3, 4, 5.5, best=0.25)
    Checkpoint(Path(path), tensors, parameters, parameters.network, place, "", {"loss": [0.5]}, {"gap": 1.5}).write()
    return place, {"loss": [0.5]}, {"gap": 1.5}, {name: value.tolist() for name, value in tensors.items()}


def _curve(path):
    from schedopt.policies.training.run_folder import curve_of

    [(line["phase"], line["epoch"]) <= (1, 2) for line in curve_of(Path(path).parent)]


def _config(path):
    from schedopt.core.search.settings import read_config
    from schedopt.policies.topoformer.training import TrainingParameters

    read_config(path, TrainingParameters)


def _weights(path):
    from schedopt.core.search.method_spec import parse_method
    from schedopt.policies.networks.shipped import modified

    modified(Path(path))
    spec = parse_method(f"gas:weights={path}")
    spec.parameters.check(Problem(diamond(), "memory", 2))


def _trace():
    """Return an execution trace of PyTorch."""
    import torch
    from torch.profiler import ExecutionTraceObserver

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.json"
        observer = ExecutionTraceObserver().register_callback(path)
        observer.start()
        x = torch.ones(4, 4)
        (x @ x + x).relu_().sum()
        observer.stop()
        observer.unregister_callback()
        return Path(path).read_bytes()


def formats():
    """Return the formats: name -> (suffix, true files, how one is read)."""
    graph = diamond()
    schedules = [solve(Problem(graph), "lpmf").json().encode()]
    schedules.append(solve(Problem(graph, "runtime", 2, bandwidth=1e6, latency=1.0), "dfs").json().encode())
    schedules.append(solve(Problem(graph, "runtime", 2), "random", evaluations=20).json().encode())
    curve = "".join(json.dumps({"phase": 1, "epoch": n, "step": n, "loss": 0.5}) + "\n" for n in range(3)).encode()
    weights = Path(__file__).parents[2] / "policies" / "weights" / "gas-memory.safetensors"
    binary, text = format_graph(graph, "binary"), format_graph(graph, "text")
    inductor = json.dumps(INDUCTOR).encode()
    found = {
        "costgraph-binary": (".pb", [binary], _graph),
        "costgraph-text": (".pbtxt", [text], _graph),
        "costgraph-gzip": (".pb.gz", [gzip.compress(binary), gzip.compress(text)], _graph),
        "dot": (".dot", [format_dot(graph).encode(), b"digraph {node [size=4]; a -> {b c} -> d [port=0]}"], _import),
        "node-link": (".json", [format_node_link(graph).encode()], _import),
        "inductor": (".json", [inductor], _import),
        "inductor-log": (".log", [_log(inductor)], _import),
        "execution-trace": (".json", [_trace()], _import),
        "edge-list": (".csv", [b"source,target,size\na,b,4\nb,c,8\na,c,2\n"], _import),
        "workflow": (".json", [json.dumps(WORKFLOW).encode()], _import),
        "snapshot": (".pickle", [pickle.dumps(small_snapshot())], _import),
        "any-content": (".txt", [format_dot(graph).encode(), inductor, _log(inductor)], _import),
        "schedule": (".json", schedules, _schedule),
        "order": (".txt", [b"start\nwide\nview\njoin\n"], _schedule),
        "resume": (".jsonl", *_resumed(_compared)),
        "front": (".jsonl", *_resumed(_front)),
        "checkpoint": (".safetensors", *_resumed(_checkpoint)),
        "curve": (".jsonl", [curve], _curve),
        "config": (".yaml", [CONFIG.encode()], _config),
        "weights": (".safetensors", [weights.read_bytes()[:4096], weights.read_bytes()], _weights),
    }
    if find_spec("onnx"):
        found["onnx"] = (".onnx", _onnx_files(), _without_a_run)
    if find_spec("tflite"):
        found["tflite"] = (".tflite", _tflite_files(), _without_a_run)
    return found


def _onnx_files():
    from models import onnx_models as of

    made = [of.branches(2, 16), of.random_model(1), of.with_control_flow(), of.with_function(), of.quantized()]
    return [model.SerializeToString() for model in (*made, of.with_shape_arithmetic())]


def _tflite_files():
    from models import tflite_models as of

    made = [of.branches(), of.random_model(1, ops=30), of.control_flow(), of.stateful(), of.with_variables()]
    return [model.build() for model in (*made, of.with_plan())]


def _without_a_run(path):
    """Import a model, and leave out what only a run of it tells."""
    refused = ProgramError(f"{path}: is not run")
    with (
        patch("schedopt.core.programs.onnx.session.observe", side_effect=refused),
        patch("schedopt.core.programs.tflite.runtime.measured_costs", return_value=Costs()),
    ):
        _import(path)


def _log(inductor):
    head = b'V0101 00:00:00.000000 1 torch/x.py:1] {"artifact": {"name": "g_fused", "encoding": "json"}}\n'
    lines = json.dumps(json.loads(inductor), indent=0).encode().split(b"\n")
    return head + b"".join(b"\t" + line + b"\n" for line in lines)
