"""Place a graph on two devices for the least makespan, with transfers that cost time and a limit on memory.

usage: python examples/04_several_devices.py
"""

from pathlib import Path

import schedopt

graph = schedopt.read_graph(Path(__file__).parent / "graphs" / "resnet50-training.pb.gz")
alone = schedopt.solve(graph, task="runtime", method="input")
print(f"one device: {alone.runtime / 1000:.1f} ms, {alone.peak_memory / 2**20:.0f} MiB")

machine = {"devices": 2, "bandwidth": "10GB/s", "latency": "5us"}
result = schedopt.solve(graph, task="runtime", evaluations=2000, **machine)
print(result)

# No device may hold more than 42% of what program order takes on one.
limited = schedopt.solve(graph, task="runtime", memory_limit="42%", evaluations=2000, **machine)
print(limited)
limited.plot().figure.savefig("devices.png")  # a Gantt chart with the transfers
