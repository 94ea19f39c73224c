"""Small graphs whose costs can be told by hand."""

import re

import schedopt
from schedopt.core.graph.annotations import NO_ANNOTATIONS, Annotations

SKIPPED = "b: a -> 10 us=1; c: b -> 10 us=1 work=200; d: c a -> 1f us=1"
"""What follows `a`, which is read by what is next and by what is last."""


def chain_of(ops, name="chain"):
    """A chain of ops that each read the one before and make as many bytes as its number, in 2 us."""
    return sketch("; ".join(f"op{op}: {f'op{op - 1}' * (op > 0)} -> {op + 1} us=2" for op in range(ops)), name)


def diamond():
    """source -> left, right -> sink: any order peaks at 4096 + 2048 + 512 bytes and takes 10 us; two devices take 6."""
    ops = "source -> 4096 us=1; left: source -> 2048 us=4; right: source -> 512 us=4; sink: left right -> 64 us=1"
    return sketch(ops, "diamond")


def sketch(text, name="graph", annotations=NO_ANNOTATIONS):
    """Return a graph that is written as `a -> 8 4f us=1; b: a a.1 !c -> 4@0 work=2 keep=3 once`.

    An op reads outputs of others, by port if not the first, waits for those behind a `!`, and makes outputs of so many
    bytes, each of them final (`f`) or a view of one of its inputs (`@`). It takes `us`, `work` bytes while it runs, and
    holds `keep` bytes throughout.
    """
    builder, ids = schedopt.GraphBuilder(name), {}
    for statement in text.split(";"):
        head, _, made = statement.partition("->")
        op, _, read = (part.strip() for part in head.partition(":"))
        reads = [word.partition(".") for word in read.split() if word[0] != "!"]
        costs = dict(word.split("=") for word in made.split() if "=" in word)
        outputs = [re.fullmatch(r"(\d+)(f?)(?:@(\d+))?", word) for word in made.split() if word[0].isdigit()]
        ids[op] = builder.add_op(
            op,
            inputs=[(ids[maker], int(port or 0)) for maker, _, port in reads],
            control=[ids[word[1:]] for word in read.split() if word[0] == "!"],
            outputs=[int(output[1]) for output in outputs],
            aliases=[int(output[3] or -1) for output in outputs],
            final=[bool(output[2]) for output in outputs],
            runtime=float(costs.get("us", 0)),
            workspace=int(costs.get("work", 0)),
            persistent=int(costs.get("keep", 0)),
            once="once" in made.split(),
        )
    return builder.build(annotations)


def branches(name="branches", sizes=(10, 8, 1), us=(1, 2, 1, 1), join="1f", keep=0, annotations=NO_ANNOTATIONS):
    """Two branches of one input, both wide ops first: 10 + 8 + 8 bytes, branch by branch 10 + 8 + 1."""
    start = f"start -> {sizes[0]} us={us[0]} keep={keep}"
    wide = (f"wide{at}: start -> {sizes[1]} us={us[1]}" for at in (1, 2))
    narrow = (f"narrow{at}: wide{at} -> {sizes[2]} us={us[2]}" for at in (1, 2))
    return sketch("; ".join([start, *wide, *narrow, f"join: narrow1 narrow2 -> {join} us={us[3]}"]), name, annotations)


def training_step(layers, *, phases=False, runtime=2.0, keep=0):
    """A chain of layers and its backward pass, which reads what each layer made."""
    made = [f"layer{k}: {f'layer{k - 1}' * (k > 0)} -> 100 us={runtime} keep={keep * (k == 0)}" for k in range(layers)]
    back = [f"loss: layer{layers - 1} -> 10 us={runtime}"]
    for k in reversed(range(layers)):
        back.append(f"back{k}: {f'back{k + 1}' if k < layers - 1 else 'loss'} layer{k} -> 10 us={runtime}")
    names = (*["forward"] * (layers + 1), *["backward"] * layers)
    return sketch("; ".join(made + back), "training", Annotations(phases=names if phases else ()))


def trade(name="trade", us=(1, 5, 5, 5, 5)):
    """Return a graph with two points: 13 KiB in 21 us, and 9 KiB in 22 us."""
    made = ("source -> 4096", "middle: source -> 1024", "heavy: middle -> 8192", "light: heavy -> 16")
    ops = (*made, "sink: light source -> 16")
    return sketch("; ".join(f"{op} us={time}" for op, time in zip(ops, us, strict=True)), name)
