"""Sessions of ONNX Runtime: runs in a given order that free dead tensors, and costs of nodes on this machine."""

import json
import math
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from ...base.errors import ProgramError, UsageError
from ..fresh_process import SystemAllocator, ask, digest, time_runs
from ..options import Size
from .graph import LARGEST_EVALUATED, ValueType, default_order, has_subgraphs, node_names, reads
from .program import OnnxProgram, is_small_external, load_small, read_program, runs_of

try:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state
except ImportError as error:
    raise UsageError(f"an ONNX model needs onnx and onnxruntime ({error}): pip install 'schedopt[onnx]'") from error

SEED = 1
_CAST = "InsertedPrecisionFreeCast_"
Values = dict[str, NDArray[Any]]


def session_options(
    profiles: str | None = None, *, keeps_memory: bool = False, keeps_order: bool = True
) -> onnxruntime.SessionOptions:
    """Return settings under which the file's order is the order of execution, and a dead tensor is freed at once."""
    options = onnxruntime.SessionOptions()
    orders = onnxruntime.ExecutionOrder  # without priorities it is the file's, but a Shape or Size runs when it can
    options.execution_order = orders.PRIORITY_BASED if keeps_order else orders.DEFAULT
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = options.enable_mem_reuse = options.enable_cpu_mem_arena = keeps_memory
    options.log_severity_level = 4
    if profiles is not None:
        options.enable_profiling = True
        options.profile_file_prefix = f"{profiles}/profile"
    options.add_session_config_entry("session.disable_prepacking", str(int(not keeps_memory)))
    return options


def session_of(
    model: ModelProto, folder: Path, options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    """Load a model whose external data are in `folder`; unseeded random nodes get a seed by their place in the file."""
    options = options or session_options()
    if any(map(is_small_external, model.graph.initializer)):  # shapes are inferred from tensors in the model only
        original, model = model, ModelProto()
        model.CopyFrom(original)
        load_small(model, folder)
    onnxruntime.set_seed(SEED)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.absolute()))
    with _told("load"):
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def load_file(path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Load a program, its large constants left out, in this process; see `as_loaded`."""
    program = read_program(path, shapes, observed)
    read = program.constants & {*program.outputs, *(name for node in program.nodes for name in reads(node))}
    tensors = {tensor.name: tensor for tensor in program.model.graph.initializer if tensor.name in read}
    small = {name: tensor for name, tensor in tensors.items() if math.prod(tensor.dims) <= LARGEST_EVALUATED}
    bare = replace(program, inputs=(*program.inputs, *sorted(read.difference(small))))
    options = session_options(keeps_order=False)
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/loaded.onnx"
        session_of(given := runnable(bare, order_of_file(program), small, has_sizes=False), Path(path).parent, options)
        loaded = onnx.load(f"{folder}/loaded.onnx").graph.node  # as it is given, or as it runs if that is rewritten
    kept = {node.name: at for at, node in enumerate(loaded)}
    made = {value: at for at, node in enumerate(loaded) for value in node.output}
    last = len(loaded)
    places = [
        kept.get(name, max((made.get(value, last) for value in node.output if value), default=last))  # its definition's
        for name, node in zip(program.names, program.nodes, strict=True)
    ]
    is_rewritten = [node.name for node in loaded] != [node.name for node in given.graph.node]
    order = default_order(program.nodes, places) if is_rewritten else range(len(places))
    names, own = set(program.names), set(program.types)
    return {
        "order": [program.names[op] for op in order],
        "casts": sum(node.name.startswith(_CAST) for node in loaded if node.name not in names),
        "widened": sum(any(v.startswith(_CAST) for v in {*node.output} - own) for node in loaded if node.name in names),
    }


def order_of_file(program: OnnxProgram) -> list[int]:
    """Return the nodes that run as they stand in the file."""
    places = {name: at for at, name in enumerate(node_names(program.model.graph))}
    return sorted(range(len(program.names)), key=lambda op: places[program.names[op]])


def run_model(model: ModelProto, folder: Path, inputs: Values) -> list[NDArray[Any]]:
    """Run a model once in its order; return its outputs."""
    session = session_of(model, folder)
    with _told("run"):
        return list(session.run(None, inputs))


def kernel_times(session: onnxruntime.InferenceSession) -> list[tuple[str, float]]:
    """End the profile of a session; return the node and the microseconds of each kernel that ran, by their starts."""
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_bytes())
    profile.unlink()
    suffix = "_kernel_time"
    kernels = [event for event in events if event["name"].endswith(suffix)]
    kernels.sort(key=lambda event: event["ts"])
    return [(event["name"].removesuffix(suffix), float(event["dur"])) for event in kernels]


@contextmanager
def _told(what: str) -> Any:
    """Turn the errors of ONNX Runtime into one sentence."""
    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")
    try:
        yield
    except tuple(getattr(onnxruntime_pybind11_state, name) for name in names) as error:
        raise ProgramError(f"ONNX Runtime cannot {what} the model: {str(error).strip().splitlines()[0]}") from None


def random_inputs(program: OnnxProgram) -> Values:
    """Return a value for each input: the caller's, or standard normal numbers, or 0 and 1 if they are to be whole."""
    generator = np.random.default_rng(SEED)
    values = {}
    for name in program.inputs:
        element, shape = program.types[name]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        is_whole = np.issubdtype(dtype, np.integer) or dtype == np.bool_
        numbers = generator.integers(0, 2, shape) if is_whole else generator.standard_normal(shape)
        values[name] = np.asarray(program.values.get(name, numbers)).astype(dtype)
    return values


def constant_tensors(program: OnnxProgram) -> dict[str, TensorProto]:
    """Return the constants that the nodes read, folded ones evaluated by ONNX Runtime; external data stay external."""
    initializers = {tensor.name: tensor for tensor in program.model.graph.initializer}
    read = (name for node in program.nodes for name in reads(node))
    needed = [name for name in dict.fromkeys((*read, *program.outputs)) if name in program.constants]
    given = [name for name in needed if name not in initializers]
    tensors = {name: initializers[name] for name in needed if name in initializers}
    if given:
        graph = onnx.helper.make_graph(program.folded, "constants", [], [_declared(program, name) for name in given])
        graph.initializer.extend(program.model.graph.initializer)
        session = session_of(model_of(program, graph), Path(program.path).parent)
        for name, value in zip(given, session.run(given, {}), strict=True):
            tensors[name] = onnx.numpy_helper.from_array(value, name)
    return tensors


def model_of(program: OnnxProgram, graph: onnx.GraphProto) -> ModelProto:
    """Return a model of the program's versions with another graph."""
    model, version = program.model, max(4, program.model.ir_version)
    return ModelProto(ir_version=version, opset_import=model.opset_import, graph=graph, functions=model.functions)


def runnable(
    program: OnnxProgram, order: Sequence[int], constants: Mapping[str, TensorProto], *, has_sizes: bool = True
) -> ModelProto:
    """Return the program in an order, constants stored; a branch that is not taken need not fit its sizes."""
    nodes = runs_of(program, order)  # with sizes, ONNX Runtime knows where it may write over an input
    ends = (program.inputs, program.outputs)
    inputs, outputs = ([_declared(program, name, has_shape=has_sizes) for name in names] for names in ends)
    graph = onnx.helper.make_graph(nodes, "program", inputs, outputs)
    graph.initializer.extend(constants.values())
    for op, node in zip(order, nodes, strict=True) if has_sizes else ():
        for name, value in zip(node.output, program.nodes[op].output, strict=True):
            if name and name not in program.outputs:
                graph.value_info.append(_declared(program, value, name))
    return model_of(program, graph)


def one_node(program: OnnxProgram, op: int, constants: Mapping[str, TensorProto], inputs: Values) -> ModelProto:
    """Return a model of one node alone, which gets `inputs` and constants, and gives all its outputs."""
    node = program.nodes[op]
    outputs = tuple(filter(None, node.output))
    types = {name: program.types[name] for name in outputs if name in program.types}
    for name, array in inputs.items():
        types[name] = ValueType(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    alone = replace(program, inputs=tuple(inputs), outputs=outputs, types=types)
    read = {name: constants[name] for name in reads(node) if name in constants}
    return runnable(alone, [op], read, has_sizes=not has_subgraphs(node))


def _declared(program: OnnxProgram, value: str, name: str = "", *, has_shape: bool = True) -> onnx.ValueInfoProto:
    """Return a value, under another name perhaps, with its type, or without where that is not known."""
    if value not in program.types:
        return onnx.ValueInfoProto(name=name or value)
    element, shape = program.types[value]
    return onnx.helper.make_tensor_value_info(name or value, element, shape if has_shape else None)


PEAK_REPEATS = 2


def run_order(
    path: str, shapes: Mapping[str, Size], order: Sequence[int] | None, observed: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run the program in a file, in an order of its nodes or ONNX Runtime's own: for a profile, time, and memory."""
    program = read_program(path, shapes, observed)
    inputs = random_inputs(program)
    nodes = order_of_file(program) if order is None else order
    with tempfile.TemporaryDirectory() as profiles:
        options = partial(session_options, profiles, keeps_order=order is not None)
        session = ordered_session(program, nodes, options)
        expected = digests(session.run(None, inputs))
        ran = {name for name, _ in kernel_times(session)}
    times = time_runs(lambda: session.run(None, inputs))
    allocator = SystemAllocator()
    peak = max(allocator.measure(lambda: session.run(None, inputs))[1] for _ in range(PEAK_REPEATS))
    not_run = [name for name in program.names if name not in ran]
    return {"peak": peak, **times, "digests": expected, "not_run": not_run}


def ordered_session(
    program: OnnxProgram, order: Sequence[int], options: Callable[[], onnxruntime.SessionOptions]
) -> onnxruntime.InferenceSession:
    """Load the program in an order, with sizes declared if it can be loaded so."""
    folder, constants = Path(program.path).parent, constant_tensors(program)
    try:
        return session_of(runnable(program, order, constants), folder, options())
    except ProgramError:
        if not any(map(has_subgraphs, program.nodes)):
            raise
    return session_of(runnable(program, order, constants, has_sizes=False), folder, options())


def digests(values: Sequence[NDArray[Any]]) -> list[str]:
    """Return a digest per array: of its type, shape and all bits."""
    return [digest(value.dtype, value.shape, np.ascontiguousarray(value).tobytes()) for value in values]


REPEATS = 5


def measured_costs(program: OnnxProgram) -> dict[str, tuple[float, int]]:
    """Return each node's microseconds in runs of the whole program, by the profiler, and its bytes of workspace."""
    return {name: (cost[0], cost[1]) for name, cost in ask("onnx.session:run_each", program.question).items()}


def run_each(
    path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any] | None = None
) -> dict[str, tuple[float, int]]:
    """Measure in this process, all times first: counting memory makes allocation slow."""
    program = read_program(path, shapes, observed)
    inputs, seen = random_inputs(program), defaultdict[str, list[float]](list)
    with tempfile.TemporaryDirectory() as profiles:
        fast = partial(session_options, profiles, keeps_memory=True)
        session = ordered_session(program, range(len(program.nodes)), fast)
        for _ in range(1 + REPEATS):
            session.run(None, inputs)
        for name, microseconds in kernel_times(session):
            seen[name].append(microseconds)
    times = {name: statistics.median(seen[name][1:]) for name in program.names if name in seen}  # a first run warms up
    if set(times) != set(program.names):
        alone = for_each_node(program, lambda _, session, inputs: _time(session, inputs), has_profile=True)
        times = {name: times.get(name, alone[name]) for name in program.names}
    allocator = SystemAllocator()
    workspaces = for_each_node(program, lambda _, session, inputs: workspace_of(allocator, session, inputs))
    return {name: (times[name], workspaces[name]) for name in program.names}


def for_each_node(
    program: OnnxProgram,
    measure: Callable[[str, Any, Values], tuple[Any, list[NDArray[Any]]]],
    *,
    has_profile: bool = False,
) -> dict[str, Any]:
    """Run each node alone, on its inputs in the program; return the measurement of each by `measure`."""
    constants = constant_tensors(program)
    values: Values = random_inputs(program)
    uses = Counter(name for node in program.nodes for name in dict.fromkeys(reads(node)))
    measured = {}
    with tempfile.TemporaryDirectory() as profiles:
        for op, (node, name) in enumerate(zip(program.nodes, program.names, strict=True)):
            inputs = {value: values[value] for value in dict.fromkeys(reads(node)) if value not in constants}
            options = session_options(profiles if has_profile else None, keeps_memory=has_profile)
            session = session_of(one_node(program, op, constants, inputs), Path(program.path).parent, options)
            with _told("run"):
                measured[name], outputs = measure(name, session, inputs)
            values.update(zip(filter(None, node.output), outputs, strict=True))
            del outputs, session
            for value in inputs:
                uses[value] -= 1
                if not uses[value]:
                    del values[value]
    return measured


def workspace_of(allocator: SystemAllocator, session: Any, inputs: Values) -> tuple[int, list[NDArray[Any]]]:
    """Return the most bytes of a session beyond its results, and these."""
    outputs, peak, results = allocator.measure(lambda: session.run(None, inputs))
    return max(0, peak - results), outputs


def _time(session: Any, inputs: Values) -> tuple[float, list[NDArray[Any]]]:
    """Return the median time of a run after the first; a node may be a function, which runs several kernels."""
    for _ in range(1 + REPEATS):
        outputs = session.run(None, inputs)
    times = [microseconds for _, microseconds in kernel_times(session)]
    kernels = len(times) // (1 + REPEATS)
    runs = [sum(times[run * kernels : (run + 1) * kernels]) for run in range(1, 1 + REPEATS)]
    return statistics.median(runs), outputs


SECONDS = 300.0  # a run takes no longer, for a damaged loop may have no end


def observe(program: OnnxProgram) -> Any:
    """Ask another process for the `types` that are missing, and opaque nodes' `workspaces`, by one run."""
    return ask("onnx.session:run_once", program.question, seconds=SECONDS)


def as_loaded(program: OnnxProgram) -> Any:
    """Ask another process for the `order` in which ONNX Runtime runs a program by default, and what loading changes.

    That is the number of `casts` that it adds where the CPU has no kernel, and of nodes that give float32 (`widened`).
    """
    return ask("onnx.session:load_file", program.question, seconds=SECONDS)


def run_once(path: str, shapes: Mapping[str, Size], observed: Mapping[str, Any]) -> dict[str, Any]:
    """Run the program in this process; see `observe`."""
    program = read_program(path, shapes, observed)
    allocator, constants = SystemAllocator(), constant_tensors(program)
    types = {name: [t.data_type, list(t.dims)] for name, t in constants.items() if name not in program.types}
    results = {name: filter(None, node.output) for name, node in zip(program.names, program.nodes, strict=True)}

    def look(name: str, session: Any, inputs: Values) -> tuple[int, Any]:
        is_opaque = name in program.opaque
        size, outputs = workspace_of(allocator, session, inputs) if is_opaque else (0, session.run(None, inputs))
        for result, value in zip(results[name], outputs, strict=True):
            if result not in program.types:
                if not isinstance(value, np.ndarray):
                    raise ProgramError(f"'{result}' is no tensor")
                types[result] = [onnx.helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)]
        return size, outputs

    workspaces = for_each_node(program, look)
    return {"types": types, "workspaces": {name: workspaces[name] for name in sorted(program.opaque)}}
