"""Networks written out layer by layer, against what their authors and other implementations publish."""

import numpy as np
import pytest
from schedopt import Problem, Schedule
from schedopt.core.files.costgraph import format_graph, parse_graph
from schedopt.core.model.simulator import simulate
from schedopt.datasets.architectures import ARCHITECTURES, ConvNet, architecture_graph


def parameters(graph):
    """Persistent float32 values of the forward ops."""
    updates = np.array([name.endswith("/update") for name in graph.op_names])
    return int(graph.persistent[~updates].sum()) // 4


def size_of(graph, op, port=0):
    return int(graph.tensor_size[graph.output_ptr[graph.op_names.index(op)] + port])


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("nasnet-a-mobile", 5_289_978),  # Keras NASNetMobile, trainable
        ("nasnet-a-large", 88_753_150),  # Keras NASNetLarge, trainable
        ("resnet50", 25_557_032),  # torchvision resnet50
        ("unet", 31_030_658),  # two classes, one input channel, biases
    ],
)
def test_number_of_parameters(name, published):
    graph = architecture_graph(name, training=True)
    assert parameters(graph) == published
    updates = [op for op in range(graph.num_ops) if graph.op_names[op].endswith("/update")]
    assert int(graph.persistent[updates].sum()) == 4 * published


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_graphs_are_valid_in_program_order_and_round_trip(name, training):
    graph = architecture_graph(name, training=training)
    assert np.array_equal(graph.input_order, np.arange(graph.num_ops))
    assert parse_graph(format_graph(graph, "binary"), "again") == graph
    assert graph.is_final.sum() == 1
    assert (graph.runtime[1:] >= 1).all()
    _, targets = graph.edges
    assert set(range(graph.num_ops)) - set(targets.tolist()) == {0}
    simulate(Problem(graph), Schedule.single_device(graph.input_order))


def test_shapes_of_nasnet():
    graph = architecture_graph("nasnet-a-mobile")
    assert graph.num_ops == 711
    assert size_of(graph, "stem/conv") == 4 * 32 * 111 * 111
    assert size_of(graph, "stem/cell1/concat") == 4 * 44 * 56 * 56
    assert size_of(graph, "stage1/cell1/concat") == 4 * 264 * 28 * 28
    assert size_of(graph, "stage2/cell4/concat") == 4 * 528 * 14 * 14
    assert size_of(graph, "stage3/cell4/concat") == 4 * 1056 * 7 * 7
    assert size_of(graph, "head/logits") == 4 * 1000


def test_a_normal_cell_reads_both_inputs_as_in_figure_4_of_the_paper():
    graph = architecture_graph("nasnet-a-mobile")
    names, (pointers, producers) = graph.op_names, graph.predecessors

    def reads(op):
        at = names.index(op)
        return {names[p] for p in producers[pointers[at] : pointers[at + 1]]}

    cell = "stage1/cell2"
    assert reads(f"{cell}/newer/relu") == {"stage1/cell1/concat"}
    assert reads(f"{cell}/older/relu") == {"stem/cell2/concat"}
    assert reads(f"{cell}/block3/add") == {f"{cell}/block3/left", f"{cell}/older/conv"}
    assert reads(f"{cell}/block5/add") == {f"{cell}/block5/left/pointwise2", f"{cell}/newer/conv"}
    blocks = {f"{cell}/block{number}/add" for number in range(1, 6)}
    assert reads(f"{cell}/concat") == {f"{cell}/older/conv", *blocks}
    assert len(reads("reduction1/concat")) == 4


def test_shapes_of_unet():
    graph = architecture_graph("unet")
    assert size_of(graph, "down1/conv2") == 4 * 64 * 568 * 568
    assert size_of(graph, "bottom/conv2") == 4 * 1024 * 28 * 28
    assert size_of(graph, "up1/concat") == 4 * 128 * 392 * 392
    assert size_of(graph, "head/logits") == 4 * 2 * 388 * 388


def test_batch_scales_activations_and_not_parameters():
    one, four = architecture_graph("resnet50"), architecture_graph("resnet50", batch=4)
    assert np.array_equal(four.tensor_size, 4 * one.tensor_size)
    assert np.array_equal(four.persistent, one.persistent)
    assert one.tensor_size.tolist() == architecture_graph("resnet50", resident_weights=False).tensor_size.tolist()
    assert not architecture_graph("resnet50", resident_weights=False).persistent.any()


def test_runtimes_are_the_roofline():
    graph = architecture_graph("resnet50", batch=64)
    runtime = dict(zip(graph.op_names, graph.runtime.tolist(), strict=True))
    flops = 2 * 7 * 7 * 3 * 64 * 112 * 112 * 64
    assert runtime["stem/conv"] == round(flops / 2e6)  # 2 TFLOP/s
    moved = 4 * 64 * 64 * (112 * 112 + 56 * 56)
    assert runtime["stem/pool"] == round(moved / 5e4)  # 50 GB/s


def test_backward_pass_by_hand():
    net = ConvNet("tiny", training=True)
    x = net.conv("conv", net.image(3, 8), 4, 3, relu=True)
    z = net.add("add", net.pool("pool", x, 3, 1, "max"), x)
    z = net.concat("concat", [z, x])
    graph = net.classify(net.global_pool("mean", z), 10)
    (pointers, tensors), names = graph.inputs, graph.op_names
    reads = {
        name: " ".join(graph.tensor_name(t) for t in tensors[pointers[op] : pointers[op + 1]])
        for op, name in enumerate(names)
    }
    assert reads == {
        "image": "",
        "conv": "image:0",
        "conv/norm": "conv:0",
        "conv/relu": "conv/norm:0",
        "pool": "conv/relu:0",
        "add": "pool:0 conv/relu:0",
        "concat": "add:0 conv/relu:0",
        "mean": "concat:0",
        "head/logits": "mean:0",
        "softmax": "head/logits:0",
        "loss": "softmax:0",
        "softmax/grad": "softmax:0",
        "head/logits/grad": "softmax/grad:0",
        "head/logits/grad_weights": "softmax/grad:0 mean:0",
        "mean/grad": "head/logits/grad:0",
        "concat/grad": "mean/grad:0",
        "add/grad/sum": "concat/grad:1 concat/grad:0",  # the sum's gradient is both its inputs'
        "pool/grad": "concat/grad:0 pool:1",
        "pool/grad/sum": "add/grad/sum:0 pool/grad:0",
        "conv/relu/grad": "pool/grad/sum:0 conv/relu:0",
        "conv/norm/grad": "conv/relu/grad:0 conv:0 conv/norm:1",
        "conv/grad_weights": "conv/norm/grad:0 image:0",
        "conv/update": "conv/grad_weights:0",
        "conv/norm/update": "conv/norm/grad:1",
        "head/logits/update": "head/logits/grad_weights:0 head/logits/grad:control",
    }
    assert size_of(graph, "pool", 1) == 8 * 4 * 8 * 8  # where the maxima are
    assert size_of(graph, "conv/grad_weights") == 4 * 3 * 3 * 3 * 4
    assert size_of(graph, "conv/norm/grad", 1) == 4 * 2 * 4
    assert [graph.tensor_name(t) for t in np.flatnonzero(graph.is_final)] == ["loss:0"]
