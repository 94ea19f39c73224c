"""Compare methods on several graphs under the same budget, as the papers' tables do.

usage: python examples/05_compare.py
"""

from pathlib import Path

import schedopt

graphs = [Path(__file__).parent / "graphs" / name for name in ("layered-50.pbtxt", "layered-500.pb.gz", "unet.pb.gz")]
methods = ["input", "dfs", "lpmf", "topoformer", "auto:evaluations=1000"]
comparison = schedopt.compare(graphs, methods=methods, reference="input")
print(comparison)  # improvements over the input order, gaps from the best and from the bound

print("methods to choose from:", *(method.name for method in schedopt.methods()))
