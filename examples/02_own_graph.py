"""Describe a graph of your own, op by op or with networkx, and schedule it.

usage: python examples/02_own_graph.py

An op that widens its input and one that narrows it again, three times beside each other. Program order widens all
before it narrows the first, and so holds three wide tensors at once; a better order holds one.
"""

import networkx as nx
import schedopt

NARROW, WIDE = 1_000, 1_000_000  # bytes

builder = schedopt.GraphBuilder("branches")
source = builder.add_op("source", outputs=[NARROW])
wide = [builder.add_op(f"widen{branch}", inputs=[(source, 0)], outputs=[WIDE], runtime=2.0) for branch in range(3)]
narrow = [
    builder.add_op(f"narrow{branch}", inputs=[(producer, 0)], outputs=[NARROW], runtime=1.0)
    for branch, producer in enumerate(wide)
]
builder.add_op("sum", inputs=[(producer, 0) for producer in narrow], outputs=[NARROW], final=True)
graph = builder.build()
print(schedopt.solve(graph))

# The same in networkx: nodes carry what they write, edges say who reads it.
drawn = nx.DiGraph()
drawn.add_node("source", size=NARROW)
for branch in range(3):
    drawn.add_node(f"widen{branch}", size=WIDE, runtime=2.0)
for branch in range(3):
    drawn.add_node(f"narrow{branch}", size=NARROW, runtime=1.0)
    drawn.add_edge("source", f"widen{branch}")
    drawn.add_edge(f"widen{branch}", f"narrow{branch}")
drawn.add_node("sum", size=NARROW, final=True)
drawn.add_edges_from((f"narrow{branch}", "sum") for branch in range(3))
result = schedopt.solve(schedopt.from_networkx(drawn))
print("the same peak:", result.peak_memory == schedopt.solve(graph).peak_memory)
print(*result.order)
