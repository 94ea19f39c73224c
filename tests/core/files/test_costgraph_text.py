"""The fast reader of text against the protobuf library, on the same text."""

import pytest
from google.protobuf import text_format
from schedopt.core.base.errors import FormatError, GraphError
from schedopt.core.files.cost_graph_pb2 import CostGraphDef
from schedopt.core.files.costgraph import parse_graph


@pytest.mark.parametrize(
    "text",
    [
        'node{name:"a" id:1 output_info{size:8}}node{id:2 input_info{preceding_node:1}}',
        'node: {\n name: "a"\n id: 0x10\n}\n# comment\nnode {\n  id: 010\n  id_: 3 }',
        'node: {\n name: "a"\n id: 0x10\n}\n# comment\nnode {\n  id: 010\n}\n',
        "node <\n id: 1\n output_info: < size: 3 >\n>\nnode { id: 2; control_input: [1, 1], is_final: t }",
        "node {\r\n  id: 1\r\n}\r\nnode {\r\n  id: 2\r\n  control_input: 1\r\n}\r\n",
        'node {\n name: "a\\n\\"\\303\\265\\x41"\n id: 3\n}',
        "node {\n name: 'single'\n}",
        'node {\n name: "one" "two"\n}',
        'node {\n  name: "a" # "b"\n}',
        "node {\n\n\t compute_cost :  12 \n  is_final: 1\n output_info {\n\n size: 4\n\n }\n}",
        "node {\n control_input: 5\n output_info {\n alias_input_port: -1\n size: 7\n }\n id: 4\n}\nnode {\n id: 5\n}",
        "node {\n compute_cost: 3\n compute_cost: 4\n}",
        "node {\n output_info {\n size: 3\n size: 4\n }\n}",
        "node {\n output_info {\n size: 0\n size: 4\n }\n}",
        "node {\n id: 00\n temporary_memory_size: -0\n}",
        "node {\n id: ٣\n}",
        "node {\n output_info {\n alias_input_port: -010\n }\n}",
        "node {\n id: 4294967296\n}",
        "node {\n id: 1\n} node {\n id: 2\n}",
        "node {\n id: 1\n}\n}",
        "node {\n output_info {\n size: 1\n }",
        "node {\n input_info {\n preceding_node: 0\n size: 1\n }\n}",
        'node {\n device: "x"\n is_final: TRUE\n}',
        'node {\n name: "\u00a0a"\u00a0\n}',
    ],
)
def test_text_is_read_as_the_protobuf_library_reads_it(text):
    try:
        binary = text_format.Parse(text, CostGraphDef()).SerializeToString()
    except text_format.ParseError:
        with pytest.raises(FormatError):
            parse_graph(text.encode(), "g")
        return
    results = []
    for data in (text.encode(), binary):
        try:
            results.append(parse_graph(data, "g"))
        except GraphError as error:
            results.append(str(error))
    assert results[0] == results[1]
