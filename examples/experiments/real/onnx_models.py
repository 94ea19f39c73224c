"""ONNX models before and after `auto`: what ONNX Runtime takes by default and in the schedule's order.

usage: python examples/experiments/real/onnx_models.py [FILE.onnx[@NAME=VALUE]...] [--export MODULE:FUNCTION]...
       [--offline] [--time-limit SECONDS, default 10] [--repeats N, default 1] [--folder FOLDER, default temporary]

Without files, the light models that the onnx package ships. `net.onnx@x=1x3x320x320` gives sizes as `--shape` does.
`--offline` has ONNX Runtime optimise each model and save it first, as it is deployed. `--export` makes a file of a
PyTorch model first, by `torch.onnx.export`; MODULE:FUNCTION returns the model and its inputs, as those of models.py do
(`--export models:pnasnet5large` needs `pip install timm onnxscript`). Each model is imported with measured costs,
solved, applied (FOLDER keeps the new file and its schedule) and run in processes of their own. Prints a row per model:
nodes that run; peaks in MiB, predicted and measured, before and after; how much less is measured; the bound that no
order is below; how much less beside weights and inputs, which no order changes; the larger error of the two
predictions; milliseconds of a run before and after; what ops make in one arena with addresses (alignment 64) before
and after, predicted, and the bound of the schedule's order; and whether results, node names, opset are what they were.
Needs `pip install 'schedopt[onnx]'`. The light models take five minutes on one core, pnasnet5large as long again.
"""

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path

COLUMNS = (
    "model",
    "nodes",
    "predicted",
    "",
    "measured",
    "",
    "saved",
    "bound",
    "beside weights",
    "error",
    "ms",
    "",
    "arena",
    "",
    "its bound",
    "kept",
)


def light_models():
    """The models in the onnx package whose weights are constants, so that they take little space."""
    import onnx

    return sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("light_*.onnx"))


def export(entry, folder):
    """Write the model that `module:function` returns as ONNX; return the file."""
    import torch

    module, _, function = entry.partition(":")
    sys.path.insert(0, str(Path(__file__).parent))
    model, inputs = getattr(import_module(module), function)()
    path = folder / f"{function}.onnx"
    named = isinstance(inputs, dict)
    program = torch.onnx.export(
        model.eval(), () if named else tuple(inputs), kwargs=inputs if named else None, dynamo=True, verbose=False
    )
    program.save(path)
    return path


def optimised(path, folder):
    """Have ONNX Runtime optimise a model and save it; return the new file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # it warns that the file is for this kind of processor
    options.optimized_model_filepath = str(folder / f"{path.stem}_offline.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return folder / f"{path.stem}_offline.onnx"


def compare(path, shapes, folder, time_limit, repeats):
    """Import, solve, apply and measure one model; return its row."""
    import onnx
    import schedopt
    from schedopt.core.programs.options import ImportOptions
    from schedopt.core.programs.runtime import load_runtime

    runtime = load_runtime(str(path), ImportOptions(shapes=shapes), note)
    graph = runtime.graph("measured", lambda text: None)
    given_order = schedopt.solve(graph, "input", addresses=True, time_limit=time_limit)
    result = schedopt.solve(graph, addresses=True, time_limit=time_limit)
    schedule = folder / f"{path.stem}.json"
    schedule.write_text(result.json())
    output = folder / f"{path.stem}_ordered.onnx"
    order = result.schedule.op_order().tolist()
    runtime.write(graph, order, str(output), note)
    orders = {str(schedule): order}
    before, after = runtime.measure(graph, orders, repeats, note)
    old, new = (onnx.load(file, load_external_data=False) for file in (path, output))
    given = {node.name for node in old.graph.node if node.name}
    is_kept = (
        all(row.is_equal for row in (before, after))
        and old.opset_import == new.opset_import
        and given <= {node.name for node in new.graph.node}
    )
    held = int(graph.persistent.sum())
    (arena_before,), (arena,) = given_order.addresses.arenas, result.addresses.arenas
    peaks = (before.predicted_peak, after.predicted_peak, before.measured_peak, after.measured_peak)
    return (
        path.stem.removeprefix("light_"),
        f"{graph.num_ops:,}",
        *(f"{peak / 2**20:,.2f}" for peak in peaks),
        f"{100 * (1 - after.measured_peak / before.measured_peak):.1f}%",
        f"{result.lower_bound / 2**20:,.2f}",
        f"{100 * (1 - (after.measured_peak - held) / (before.measured_peak - held)):.1f}%",
        f"{100 * max(abs(before.error), abs(after.error)):.2f}%",
        *(f"{row.median_microseconds / 1000:,.2f}" for row in (before, after)),
        *(f"{size / 2**20:,.3f}" for size in (arena_before.size, arena.size, arena.bound)),
        "yes" if is_kept else "NO",
    )


def note(text):
    print(text, file=sys.stderr)


def show(row):
    print(
        f"{row[0]:<24}" + "".join(f"{cell:>10}" for cell in row[1:8]), *(f"{cell:>14}" for cell in row[8:]), flush=True
    )


def main():
    from schedopt.cli.options import given_options

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--export", action="append", default=[])
    parser.add_argument("--time-limit", type=float, default=10)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        files = [*arguments.files, *(str(export(entry, folder)) for entry in arguments.export)] or light_models()
        show(COLUMNS)
        for file in map(str, files):
            name, *sizes = file.split("@")
            path = optimised(Path(name), folder) if arguments.offline else Path(name)
            shapes = given_options(None, sizes, None).get("shapes", {})
            show(compare(path, shapes, folder, arguments.time_limit, arguments.repeats))


if __name__ == "__main__":
    main()
