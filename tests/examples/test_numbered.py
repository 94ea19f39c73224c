"""The numbered examples run as they stand, in a folder of their own, and use the public names alone."""

import ast

import pytest
import schedopt
from models.examples import EXAMPLES, run

NUMBERED = sorted(EXAMPLES.glob("[0-9]*.py"))
RUN = [pytest.param(p, id=p.stem, marks=[] if p.stem < "03" else [pytest.mark.slow]) for p in NUMBERED]
PRINTED = {
    "01_first_schedule.py": "10.5% below program order, optimal",
    "02_own_graph.py": "the same peak: True\nsource widen0 narrow0 widen1 narrow1 widen2 narrow2 sum\n",
    "03_pytorch_model.py": "the same bits: True",
    "04_several_devices.py": "one device: 33.5 ms, 351 MiB",
    "05_compare.py": "methods to choose from: auto input ",
    "06_addresses.py": "schedopt: arena 4,038,528 bytes, 4,038,528 alive at once, optimal",
    "07_onnx_deployed.py": "nodes; it takes image",
    "08_tflite_model.py": "It fits in another order: 34.2 KiB of 64.0 KiB.",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", RUN)
def test_an_example_runs_and_prints_what_it_is_for(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PRINTED[path.name] in run(path)


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.stem)
def test_an_example_uses_public_names_alone(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.module.startswith("schedopt")
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("schedopt.") for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "schedopt":
            assert node.attr in schedopt.__all__


def test_the_readme_lists_every_example_and_graph():
    readme = (EXAMPLES / "README.md").read_text()
    for path in NUMBERED:
        assert f"[{path.name}]({path.name})" in readme
    for path in (EXAMPLES / "graphs").iterdir():
        assert f"`{path.name.split('.')[0]}`" in readme


def test_every_experiment_stands_in_their_readme():
    """Scripts that others source or import have no command of their own."""
    folder = EXAMPLES / "experiments"
    readme = (folder / "README.md").read_text()
    parts = {"regal/policies.sh", "regal/figures_of_runs.py", "regal/figures_of_networks.py"}
    parts |= {"regal/figures_of_training.py", "topoformer/first_training.yaml", "topoformer/set_labels.py"}
    parts |= {"several_devices/recorded_runs.py"}
    for path in folder.glob("*/*.*"):
        name = str(path.relative_to(folder))
        assert (f"]({name})" in readme) != (name in parts), name
