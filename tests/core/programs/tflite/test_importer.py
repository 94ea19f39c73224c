"""TFLite models as graphs, by hand."""

import numpy as np
from models.tflite_models import Model, branches, control_flow, stateful, with_variables
from schedopt.core.model.simulator import input_peak
from schedopt.core.programs.tflite.interpreter import Costs
from schedopt.core.programs.tflite.program import parse_program
from schedopt.core.programs.tflite.runtime import graph_of, note_unknown


def graph(model, **costs):
    return graph_of(parse_program(model.build(), "m.tflite"), Costs(**costs))


def edges(built):
    return {(built.op_names[a], built.op_names[b]) for a, b in zip(*built.edges, strict=True)}


def test_inputs_are_an_op_and_sizes_are_aligned():
    built = graph(branches(count=2, width=3))
    assert built.op_names == ("inputs", "grow0", "grow1", "shrink0", "shrink1", "y")
    assert built.tensor_size.tolist() == [16, 48, 64, 16, 16, 16]
    assert not built.persistent.any()  # weights stay in the file
    assert input_peak(built) == 16 + 48 + 64  # the input is freed after its last reader
    assert built.is_final.tolist() == [False] * 5 + [True]
    assert built.runs_once.tolist() == [True] + [False] * 5


def test_scratch_buffers_are_the_workspace():
    built = graph(branches(count=2, width=3), scratch={(0, 2): [20, 5]})
    assert built.workspace.tolist() == [0, 0, 0, 32 + 16, 0, 0]


def test_a_reshape_is_a_view_unless_of_a_weight():
    model = Model()
    main = model.subgraph()
    source = main.input([1, 8])
    shape, weight = main.constant(np.array([2, 4], np.int32)), main.constant(np.ones((1, 8), np.float32))
    one = main.apply("RESHAPE", [source, shape], [2, 4], name="one")
    two = main.apply("RESHAPE", [weight, shape], [2, 4], name="two")
    main.outputs = [main.apply("ADD", [one, two], [2, 4], name="y")]
    built = graph(model)
    assert built.alias_of.tolist()[:3] == [-1, -1, 0]  # after the control tensor of the inputs, which `two` waits for
    assert int((built.alias_of >= 0).sum()) == 1


def test_what_runs_subgraphs_holds_what_they_take():
    built = graph(control_flow())
    at = built.op_names.index("if")
    assert built.workspace.tolist()[at] > 3 * 512  # the larger of the two: its input, and thrice as much
    assert (built.workspace > 0).sum() == 1


def test_variable_tensors_are_persistent_and_their_ops_run_once():
    built = graph(stateful())
    filters = [built.op_names.index(name) for name in ("filter0", "filter1")]
    assert built.persistent[filters].tolist() == [120, 120]
    assert built.runs_once[filters].all()
    assert [(r.name, r.role, r.writers) for r in built.annotations.residents] == [
        ("state0", "buffer", (filters[0],)),
        ("state1", "buffer", (filters[1],)),
    ]


def test_ops_that_touch_a_resource_keep_their_order():
    built = graph(with_variables())
    assign = next(name for name in built.op_names if name.startswith("ASSIGN"))
    assert {("before", assign), (assign, "after")} <= edges(built)


def test_custom_operators_keep_their_order_and_run_once():
    model = Model()
    main = model.subgraph()
    source = main.input([1, 4])
    for name in ("one", "two"):
        result = main.tensor([1, 4], name=name)
        main.op("CUSTOM", [source], [result], custom="mine")
        main.outputs.append(result)
    built = graph(model)
    assert ("one", "two") in edges(built)
    assert built.runs_once.all()


def test_what_is_not_known_is_said():
    program, said = parse_program(branches().build(), "m.tflite"), []
    note_unknown(program, Costs(reason="tflite-micro refuses it: no"), said.append)
    note_unknown(program, Costs(head=1, tail=1, unknown=["operator 0 (MINE) of subgraph 0"]), said.append)
    assert "of weights stay in the file" in said[0]
    assert "refuses it: no; scratch buffers of its kernels are not known, and counted as none" in said[1]
    assert "operator 0 (MINE) of subgraph 0 does not run alone" in said[3]
    assert "arena's head has 1 bytes in program order" in said[4]
