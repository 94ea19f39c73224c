"""Draws the examples of docs/concepts/machines.md: transfers that block, and transfers beside work.

usage: python docs/images/machines.py
"""

from pathlib import Path

import schedopt

MB = 10**6


def example():
    """Return the graph: four branches of two ops, joined."""
    builder = schedopt.GraphBuilder("four-branches")
    source = builder.add_op("source", outputs=[4 * MB], runtime=1000.0)
    ends = []
    for number in range(4):
        wide = builder.add_op(f"a{number}", inputs=[(source, 0)], outputs=[6 * MB], runtime=3000.0)
        ends.append(builder.add_op(f"b{number}", inputs=[(wide, 0)], outputs=[3 * MB], runtime=2000.0))
    builder.add_op("join", inputs=[(op, 0) for op in ends], outputs=[MB], runtime=1500.0)
    return builder.build()


def machine(transfers):
    """Return two devices, of which the second is a little slower."""
    devices = schedopt.Device("gpu0", memory=2**30), schedopt.Device("gpu1", memory=2**30, speed=0.8)
    return schedopt.Machine(devices, bandwidth=4e9, latency=20.0, transfers=transfers)


def draw(folder):
    """Draw the same graph on the same devices with either kind of transfers."""
    for transfers in ("blocking", "beside"):
        result = schedopt.solve(example(), task="runtime", machine=machine(transfers), evaluations=200_000)
        result.plot().figure.savefig(folder / f"machines-{transfers}.svg")


if __name__ == "__main__":
    draw(Path(__file__).parent)
