"""Makes the example of docs/concepts/cost-model.md: writes its graph to the file named, or draws cost-model.svg.

usage: python docs/images/cost_model.py [GRAPH]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import schedopt

MIB = 2**20


def example():
    """Return the graph: two branches that are wide, then narrow."""
    builder = schedopt.GraphBuilder("example")
    image = builder.add_op("image", outputs=[4 * MIB])
    wide = [builder.add_op(f"wide{i}", inputs=[(image, 0)], outputs=[6 * MIB]) for i in (1, 2)]
    narrow = [builder.add_op(f"narrow{i}", inputs=[(op, 0)], outputs=[MIB]) for i, op in enumerate(wide, start=1)]
    builder.add_op("join", inputs=[(op, 0) for op in narrow], outputs=[2 * MIB], final=True)
    return builder.build()


def draw(target):
    """Draw program order and the best order, one over the other."""
    with tempfile.TemporaryDirectory() as folder:
        graph = str(Path(folder) / "example.pbtxt")
        schedopt.write_graph(example(), graph)
        command = [sys.executable, "-m", "schedopt", "solve", graph, "--quiet", "--plot", str(target)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        schedopt.write_graph(example(), sys.argv[1])
    else:
        draw(Path(__file__).with_name("cost-model.svg"))
