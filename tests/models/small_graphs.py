"""Small graphs whose costs can be told by hand."""

import schedopt


def chain_of(ops, name="chain"):
    """A chain of ops that each read the one before and make as many bytes as its number, in 2 us."""
    builder = schedopt.GraphBuilder(name)
    for op in range(ops):
        builder.add_op(f"op{op}", inputs=[(op - 1, 0)] if op else [], outputs=[op + 1], runtime=2.0)
    return builder.build()


def diamond():
    """source -> left, right -> sink: any order peaks at 4096 + 2048 + 512 bytes and takes 10 us; two devices take 6."""
    builder = schedopt.GraphBuilder("diamond")
    source = builder.add_op("source", outputs=[4096], runtime=1.0)
    left = builder.add_op("left", inputs=[(source, 0)], outputs=[2048], runtime=4.0)
    right = builder.add_op("right", inputs=[(source, 0)], outputs=[512], runtime=4.0)
    builder.add_op("sink", inputs=[(left, 0), (right, 0)], outputs=[64], runtime=1.0)
    return builder.build()
