"""Schedule a graph file for the least peak memory, look at the result, save it, and check what was saved.

usage: python examples/01_first_schedule.py
"""

from pathlib import Path

import schedopt

graph = schedopt.read_graph(Path(__file__).parent / "graphs" / "nasnet-a-mobile.pb.gz")
result = schedopt.solve(graph, task="memory", time_limit=10)
print(result)  # the table that `schedopt solve` prints

print("the first ops of the order:", *result.order[:3])
saved = 1 - result.peak_memory / schedopt.solve(graph, method="input").peak_memory
print(f"{saved:.1%} below program order, {result.status}: no order is below {result.lower_bound:,} bytes")

result.save("schedule.json")
schedopt.verify(graph, "schedule.json")  # raises an error that names the rule which a schedule breaks
