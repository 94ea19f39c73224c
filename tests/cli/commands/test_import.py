"""`schedopt import`: every kind of model through the command, and one clear sentence for each that cannot be read."""

import json
import textwrap

import pytest
from models.small_graphs import sketch
from schedopt import read_graph
from schedopt.core.files.costgraph import SUFFIXES
from schedopt.core.programs.graphs.attributed_graph import format_node_link
from schedopt.core.programs.importers import IMPORTERS, kind_of

DOT = 'digraph { node [runtime=2]; a [size="4KiB"]; b [size=100]; a -> b }'
BUFFERS = {
    "nodes": [{"name": "op0", "buffer_names": ["buf0"]}],
    "buffers": [{"name": "buf0", "size_alloc": 8, "size_free": 8, "is_input": False, "is_output": True, "deps": []}],
}
TRACE_HEAD = 'V1121 22:50:38.238000 7886 torch/_inductor/memory.py:1186] {"artifact": {"name": "m_fused"}}\n\t'


@pytest.fixture
def dot_file(tmp_path):
    path = tmp_path / "model.dot"
    path.write_text(DOT)
    return path


def test_the_graph_goes_to_standard_output_and_remarks_to_the_other(run, dot_file, tmp_path):
    result = run("import", dot_file)
    assert result.exit_code == 0
    (tmp_path / "read.pbtxt").write_text(result.stdout)
    graph = read_graph(tmp_path / "read.pbtxt")
    assert graph.op_names == ("a", "b")
    assert graph.tensor_size.tolist() == [4096, 100]
    assert graph.runtime.tolist() == [2, 2]
    assert "2 ops, 2 tensors of 4.10 KiB; peak 4.10 KiB in program order" in result.stderr
    assert run("import", dot_file, "--quiet").stderr == ""


def test_every_command_counts_the_models_own_ops_and_its_data_tensors(run, tmp_path):
    """A result that is one of two of its op, and an op that only waits for another, add nothing to the counts."""
    graph = sketch("max -> 4f 8; add: max.1 -> 2f; log: !max -> 1", "model")
    model, target, plan = tmp_path / "model.json", tmp_path / "g.pb", tmp_path / "s.json"
    model.write_text(format_node_link(graph))
    texts = [
        run("import", model, "-o", target, "--json").stdout,
        run("show", target, "--json").stdout,
        run("convert", target, tmp_path / "g.pbtxt", "--json").stdout,
    ]
    assert [(row["ops"], row["tensors"]) for row in map(json.loads, texts)] == [(3, 4)] * 3
    assert "g: 3 ops, 4 tensors\n" in run("solve", target, "-m", "input", "-o", plan).stdout
    assert [step["op"] for step in json.loads(plan.read_text())["steps"]] == ["max", "add", "log"]
    assert read_graph(target) == graph


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_output_file_chooses_its_format(run, dot_file, tmp_path, suffix):
    target = tmp_path / f"graph{suffix}"
    result = run("import", dot_file, "--output", target)
    assert result.stdout == ""
    assert f"wrote {target}" in result.stderr
    assert read_graph(target).tensor_size.tolist() == [4096, 100]


def test_json_says_what_was_imported(run, dot_file, tmp_path):
    result = run("import", dot_file, "--json", "-o", tmp_path / "graph.pb")
    assert json.loads(result.stdout) == {
        "graph": "model",
        "kind": "dot",
        "ops": 2,
        "tensors": 2,
        "tensor_bytes": 4196,
        "persistent_bytes": 0,
        "input_peak": 4196,
        "runtime_us": 4.0,
        "output": str(tmp_path / "graph.pb"),
    }


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("m.onnx", "", "onnx"),
        ("m.pt2", "", "pytorch"),
        ("m.gv", "", "dot"),
        ("m.DOT", "", "dot"),
        ("m.txt", f"# of some tool\n/* it */ {DOT}", "dot"),
        ("m.json", json.dumps(BUFFERS), "inductor"),
        ("m.json", json.dumps(BUFFERS)[:50], "inductor"),
        ("m.json", '{"nodes": [], "links": []}', "node-link"),
        ("m.json", '\ufeff{"nodes": [], "edges": []}', "node-link"),
        ("m.json", '{"directed": true, "nodes": [{"id"', "node-link"),
        ("dedicated_log_torch_trace_x.log", TRACE_HEAD, "inductor"),
    ],
)
def test_the_kind_of_a_model_is_told_by_suffix_or_content(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_text(content)
    assert kind_of(str(path)) == kind
    assert kind in IMPORTERS


def test_folders_and_functions(tmp_path):
    assert kind_of(str(tmp_path)) == "inductor"
    assert kind_of("package.module:function") == "pytorch"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.json", '{"steps": [], "nodes": []}', "a schedule, not a model"),
        ("m.json", "[1, 2]", "JSON, but neither networkx node-link"),
        ("m.pb", "", "a CostGraphDef needs no import"),
        ("m.bin", b"\x08\x07\x12\x07", "no model that can be imported; give an .onnx, .tflite or .pt2 file"),
        ("m.txt", "", "no model that can be imported"),
    ],
)
def test_other_files_are_refused(run, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run("import", path)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {path}: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_default_size_and_a_graphs_name_reach_their_importers(run, tmp_path):
    path = tmp_path / "sizes.dot"
    path.write_text("digraph { a -> b }")
    assert "node 'a' has no size" in run("import", path).stderr
    assert "2 tensors of 2.00 KiB" in run("import", path, "--default-size", "1KiB").stderr
    log = tmp_path / "trace.log"
    payload = json.dumps(BUFFERS) + "\n"
    log.write_text(TRACE_HEAD + payload + TRACE_HEAD.replace("m_fused", "n_fused") + payload)
    assert "holds 2 graphs; choose one by --graph: m, n" in run("import", log).stderr
    assert json.loads(run("import", log, "--graph", "n", "--json", "-o", tmp_path / "n.pb").stdout)["graph"] == "n"


MODELS = """
    import torch

    class Simple(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.linear(x).relu()

    class Branching(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    def simple():
        return Simple().eval(), (torch.ones(16, 8),)

    def branching():
        return Branching().eval(), (torch.ones(3),)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "models_of_test_import.py").write_text(textwrap.dedent(MODELS))
    return folder


@pytest.fixture
def run_on(run, models, monkeypatch):
    """Run `import` on a function of the module above."""
    monkeypatch.chdir(models)
    return lambda function, *options: run("import", f"models_of_test_import:{function}", *options)


def test_a_python_function_gives_its_models_graph(run_on, tmp_path):
    shown = json.loads(run_on("simple", "--json", "-o", tmp_path / "g.pb").stdout)
    # linear and relu, 16 x 4 floats each; weights, bias and the input are the caller's
    assert (shown["kind"], shown["tensor_bytes"]) == ("pytorch", 2 * 256)
    assert shown["persistent_bytes"] == 4 * (8 * 4 + 4 + 16 * 8)
    step = json.loads(run_on("simple", "--training", "sgd", "--json", "-o", tmp_path / "s.pb").stdout)
    assert step["ops"] > shown["ops"]


@pytest.mark.slow
def test_a_recurrent_model_is_scheduled_by_its_real_times(run, tmp_path):
    """Each of its ops takes less than half a microsecond, and would be over at once if times were rounded."""
    path = tmp_path / "lstm.pbtxt"
    shown = json.loads(run("import", "models.torch_models:recurrent", "-o", path, "--json").stdout)
    graph = read_graph(path)
    assert 0 < graph.runtime.max() < 0.5
    assert graph.runtime.sum() == shown["runtime_us"]
    solved = json.loads(run("solve", path, "--task", "runtime", "-d", 2, "--evaluations", 500, "--json").stdout)
    assert graph.runtime.max() <= solved["runtime_us"] < shown["runtime_us"]


def test_the_roofline_is_that_of_the_options(run_on, tmp_path):
    def runtime(*options):
        return json.loads(run_on("simple", "--json", "-o", tmp_path / "g.pb", *options).stdout)["runtime_us"]

    flops = 2 * 16 * 8 * 4  # of linear; relu's and the bytes cost nothing at this bandwidth
    assert runtime("--flops", "1k", "--memory-bandwidth", "1EB/s") == pytest.approx((flops + 64) * 1e3, rel=0.1)
    slow = runtime("--flops", "1E", "--memory-bandwidth", "1kB/s")
    moved = 4 * (16 * 8 + 8 * 4 + 4 + 16 * 4) + 2 * 4 * 16 * 4
    assert slow == pytest.approx(moved * 1e3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("branching", "reads the value of a tensor to decide what to do at models_of_test_import.py:14"),
        ("absent", "module 'models_of_test_import' has no function 'absent'"),
    ],
)
def test_models_that_have_no_graph_say_where_and_why(run_on, function, message):
    result = run_on(function)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
