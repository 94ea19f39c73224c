"""Fit a TFLite model into the arena of a microcontroller: its order, the file with offsets, and what it takes then.

usage: python examples/08_tflite_model.py [MODEL.tflite] [SRAM, such as 64KiB]
"""

import subprocess
import sys
from pathlib import Path

import schedopt

given = [*sys.argv[1:], *[str(Path(__file__).with_name("four_branches.tflite")), "64KiB"][len(sys.argv) - 1 :]]
model, sram = given[:2]

# Does it fit? What it needs is the whole arena, as TensorFlow Lite for Microcontrollers reports it.
print(schedopt.fit(model, sram))

# The order and the offsets, verified; the runtime aligns tensors to 16 bytes.
result = schedopt.solve(schedopt.import_model(model), addresses=True, align=16)
print(result.explain())
result.save("plan.json")

# The same model in that order, written because its results are bitwise the same; and both, measured.
for command in (["apply", model, "plan.json", "--output", "ordered.tflite"], ["measure", model, "-s", "plan.json"]):
    subprocess.run([sys.executable, "-m", "schedopt", *command], check=True)
