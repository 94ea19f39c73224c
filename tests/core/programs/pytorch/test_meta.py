"""Models without data: the same graph as with it, and one sentence where they would have to be run."""

import numpy as np
import pytest
import schedopt
import torch
from models import torch_models
from models.seeds import mostly_slow
from models.torch_programs import MODELS, build
from schedopt import ProgramError
from schedopt.core.programs.importers import read_model
from schedopt.core.programs.options import ImportOptions
from schedopt.core.programs.pipeline import Observer, apply, measure
from schedopt.core.programs.pytorch.importer import graph_of
from schedopt.core.programs.pytorch.program import program_of
from schedopt.core.programs.pytorch.run import check_module

pytestmark = pytest.mark.slow

QUICK = {"losses", "changed-shapes", "drawn", "normed-sgd", "language-adam"}
NO_DATA = r"[^\n]*: its tensors have no data \([^\n]*\), so it can be imported with roofline costs, and not be run"


def without_data(build_model, *args):
    with torch.device("meta"):
        return build_model(*args)


def both_graphs(build_model, training):
    real, inputs = build_model()[:2]
    meta, meta_inputs = without_data(build_model)[:2]
    assert all(parameter.is_meta for parameter in meta.parameters())
    graphs = graph_of(program_of(real, inputs, training)), graph_of(program_of(meta, meta_inputs, training))
    assert all(parameter.is_meta for parameter in meta.parameters()), "the user's model was changed"
    return graphs


@pytest.mark.parametrize("name", mostly_slow([name for name in MODELS if name != "recurrent-sgd"], QUICK))
def test_a_model_without_data_has_the_graph_of_the_real_one(name):
    training = build(name)[2]
    real, planned = both_graphs(lambda: build(name), training)
    assert planned == real


def test_a_recurrent_step_without_data_has_the_ops_and_sizes_of_the_real_one():
    """The two biases of an LSTM layer get the same gradient, by which of its two results is chance."""
    real, planned = both_graphs(lambda: build("recurrent-sgd"), "sgd")
    assert planned.op_names == real.op_names
    for field in ("tensor_size", "alias_of", "is_final", "persistent", "runtime"):
        assert np.array_equal(getattr(planned, field), getattr(real, field))


def test_import_by_name_and_by_the_front_door():
    model, inputs = torch_models.branches()
    expected = schedopt.import_model(model, inputs)
    assert schedopt.import_model("models.torch_models:branches_without_data") == expected
    assert schedopt.import_model(*torch_models.branches_without_data()) == expected


def test_nothing_without_data_is_run(tmp_path):
    model, inputs = torch_models.branches_without_data()
    with pytest.raises(ProgramError, match=f"^Branches{NO_DATA}$"):
        schedopt.optimize(model, inputs)
    with pytest.raises(ProgramError, match=f"^Branches{NO_DATA}$"):
        schedopt.import_model(model, inputs, costs="measured")
    program = program_of(model, inputs)
    graph = graph_of(program)
    with pytest.raises(ProgramError, match=f"^Branches{NO_DATA}$"):
        check_module(program, program.module)

    name, written = "models.torch_models:branches_without_data", tmp_path / "written.pt2"
    schedule = schedopt.solve(graph, evaluations=5)
    schedule.save(tmp_path / "s.json")
    refused = f"^models.torch_models.branches_without_data{NO_DATA}$"
    with pytest.raises(ProgramError, match=refused):
        apply(name, str(tmp_path / "s.json"), str(written), ImportOptions(), print)
    assert not written.exists()
    with pytest.raises(ProgramError, match=refused):
        measure(name, [str(tmp_path / "s.json")], 1, ImportOptions(), Observer())


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_plan_for_cuda_where_there_is_none_needs_no_data_and_says_so():
    model, notes = "models.torch_models:branches", []
    graph = read_model(model, ImportOptions(device="cuda"), notes.append)
    assert graph == read_model(model, ImportOptions(), print)
    assert [note for note in notes if "there is no CUDA device here" in note and "the ops of the CPU" in note]
    with pytest.raises(ProgramError, match=NO_DATA):
        read_model(model, ImportOptions(device="cuda", costs="measured"), print)
    with pytest.raises(ProgramError, match=NO_DATA):
        measure(model, [], 1, ImportOptions(device="cuda"), Observer())
