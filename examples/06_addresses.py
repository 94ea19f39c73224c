"""From a graph file to an arena: an order, an offset for every tensor, and a picture of where each lies.

usage: python examples/06_addresses.py
"""

from pathlib import Path

import schedopt

graph = schedopt.read_graph(Path(__file__).parent / "graphs" / "nasnet-a-mobile.pb.gz")
program = schedopt.solve(graph, "input", addresses=True, align=64, time_limit="5s")
result = schedopt.solve(graph, addresses=True, align=64, time_limit="10s")
for name, solved in (("program order", program), ("schedopt", result)):
    arena = solved.document()["arenas"][0]
    print(f"{name}: arena {arena['bytes']:,} bytes, {arena['bound']:,} alive at once, {arena['status']}")

result.save("nasnet.json")  # every step has the offsets of what it makes
print(schedopt.verify(graph, "nasnet.json"))
first = next(step for step in result.document()["steps"] if step.get("offsets"))
print(f"{first['op']} writes to {first['offsets']}")

# Lifetimes alone, without a graph: a dict per buffer, or a CSV file with these columns.
buffers = [
    {"id": "input", "lower": 0, "upper": 2, "size": 600},
    {"id": "hidden", "lower": 1, "upper": 3, "size": 1000},
    {"id": "output", "lower": 2, "upper": 4, "size": 100},
]
print(schedopt.pack(buffers, align=64))
