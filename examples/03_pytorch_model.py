"""Give a PyTorch model a better order of its ops: the same results, bit for bit, from less memory.

usage: python examples/03_pytorch_model.py
"""

import schedopt
import torch
from four_branches import model

network, inputs = model()
better = schedopt.optimize(network, inputs)  # called as the model is; shares its parameters
with torch.no_grad():
    print("the same bits:", torch.equal(network(*inputs), better(*inputs)))

# The same in steps: the graph of the model, and what a schedule of it needs.
graph = schedopt.import_model(network, inputs)
print(graph)
print(schedopt.solve(graph))

# A training step is a graph, too: forward, backward, and the update of each parameter in place.
step = schedopt.import_model(network, inputs, training="sgd")
print(schedopt.solve(step, time_limit=5))
