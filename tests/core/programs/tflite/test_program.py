"""Reading TFLite files, good and bad."""

import struct

import numpy as np
import pytest
from models.tflite_models import Model, branches
from schedopt import FormatError, UsageError
from schedopt.core.programs.tflite.program import parse_program


def small():
    model = Model()
    main = model.subgraph()
    source = main.input([1, 4])
    main.outputs = [main.apply("ADD", [source, source], [1, 4], name="y")]
    return model


def test_names_are_short_where_that_leaves_them_unique():
    model = Model()
    main = model.subgraph()
    source = main.input([1, 4])
    for name in ("a;merged", "b;one", "b;two", "same", "same"):
        main.outputs.append(main.apply("ADD", [source, source], [1, 4], name=name))
    assert parse_program(model.build(), "m").names == ["a", "b;one", "b;two", "same", "same#4"]


@pytest.mark.parametrize("length", [0, 3, 7, 8, 20, 200, 500, 900])
def test_a_truncated_file_is_told(length):
    with pytest.raises(FormatError, match="not a TFLite model"):
        parse_program(branches().build()[:length], "cut.tflite")


def test_a_tensor_of_unknown_type_is_told():
    model = Model()
    main = model.subgraph()
    source = main.input([1, 4], "int8")
    main.outputs = [main.apply("ADD", [source, source], [1, 4], "int8")]
    data = bytearray(model.build())
    program = parse_program(bytes(data), "m")
    table = program.main.tensors[1].position
    vtable = table - struct.unpack_from("<i", data, table)[0]
    place = struct.unpack_from("<H", data, vtable + 4 + 2)[0]
    data[table + place] = 99
    with pytest.raises(FormatError, match="unknown type 99"):
        parse_program(bytes(data), "m")


def _with(change):
    model = small()
    change(model, model.subgraphs[0])
    return model.build()


def _cycle(model, main):
    late = main.tensor([1, 4], name="late")
    first = main.apply("ADD", [late, late], [1, 4])
    main.op("ADD", [first, first], [late])


def _written_twice(model, main):
    main.op("ADD", [0, 0], [main.outputs[0]])


def _unknown_size(model, main):
    main.apply("ADD", [0, 0], [1, 4], "STRING")


def _self_call(model, main):
    condition = main.constant(np.array([True]))
    main.apply("IF", [condition, 0], [1, 4], ThenSubgraphIndex=0, ElseSubgraphIndex=0)


def _short_constant(model, main):
    constant = main.constant(np.zeros(2, np.float32))
    main.tensors[constant] = ([9], *main.tensors[constant][1:])


def _no_operators(model, main):
    main.operators = []


WRONG = {
    "unknown type": (lambda model, main: main.apply("ADD", [0, 0], [1, 4], "VARIANT"), "of type VARIANT, whose size"),
    "negative shape": (lambda model, main: main.apply("ADD", [0, 0], [1, -4]), r"negative shape \[1, -4\]"),
    "cycle": (_cycle, "reads tensor 2, which operator 2 writes later: a cycle"),
    "written twice": (_written_twice, "writes tensor 1, which is there already"),
    "size of text": (_unknown_size, "STRING, whose size in memory is not known"),
    "runs itself": (_self_call, "subgraph 0 runs itself, through IF: a cycle"),
    "runs nothing": (
        lambda model, main: main.apply("CALL_ONCE", [], [1, 4], InitSubgraphIndex=7),
        "a CALL_ONCE runs subgraph 7 of 1",
    ),
    "no such tensor": (lambda model, main: main.op("ADD", [0, 77], [main.tensor([1])]), "names tensor 77 of 3"),
    "optional output": (lambda model, main: main.op("ADD", [0, 0], [-1]), "names tensor -1 of 2"),
    "short constant": (_short_constant, "has 8 bytes of data; its shape and type take 36"),
    "plan too short": (lambda model, main: _plan(model, [1, 0, 1, 0]), "no offset for each of the 2 tensors"),
    "negative offset": (lambda model, main: _plan(model, [1, 0, 2, 0, -5]), "the negative offset -5"),
    "plan nowhere": (
        lambda model, main: model.metadata.append(("OfflineMemoryAllocation", 9)),
        "OfflineMemoryAllocation is in buffer 9 of 1",
    ),
}


def _plan(model, values):
    model.buffers.append(struct.pack(f"<{len(values)}i", *values))
    model.metadata.append(("OfflineMemoryAllocation", len(model.buffers) - 1))


@pytest.mark.parametrize("what", WRONG)
def test_what_contradicts_itself_is_told(what):
    change, message = WRONG[what]
    with pytest.raises(FormatError, match=message):
        parse_program(_with(change), "bad.tflite")


def test_a_model_without_operators_is_told():
    with pytest.raises(UsageError, match="no operators"):
        parse_program(_with(_no_operators), "empty.tflite")
