"""Time and memory that `schedopt.optimize` itself takes, against eager training of the same model.

usage: python examples/experiments/real/optimize_memory.py [MODEL..., default gpt mlp convolutions]
       [--steps N, default 3]

Each number is of a process of its own: how far its resident memory rises at the most (VmHWM of /proc/self/status,
Linux) above what it holds with the model and its inputs. Both load code when they are first used (`torch.export`,
numba's compiled kernels), whatever the size of the model, so a tiny model goes the same way before: the column *code*
is what that raised the process by, and is not part of the others.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

MIB = 2**20


class Block(nn.Module):
    """A layer of a transformer that looks back."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.attention(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    """A language model whose output shares the weights of its input, and its loss."""

    def __init__(self, words, width, layers, length):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, text, following):
        x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        scores = F.linear(self.norm(self.blocks(x)), self.words.weight)
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())


def gpt(words=2048, width=256, layers=6, length=128):
    text = torch.randint(words, (4, length + 1))
    return GPT(words, width, layers, length), (text[:, :-1], text[:, 1:])


def mlp():
    return nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(6))), (
        torch.randn(256, 1024),
    )


def convolutions():
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(12)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *layers), (torch.randn(4, 3, 64, 64),)


MODELS = {"gpt": gpt, "mlp": mlp, "convolutions": convolutions}


def eager(model, inputs, steps):
    """Train some steps, as one does."""
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(*inputs).mean().backward()
        optimizer.step()


def imported(model, inputs, steps):
    """Import the training step, which runs nothing."""
    import schedopt

    schedopt.import_model(model, inputs, training="adam")


def optimized(model, inputs, steps, **options):
    """Optimize the training step, and take as many of it."""
    import schedopt

    optimizer = torch.optim.Adam(model.parameters())

    def step(*inputs):
        loss = model(*inputs).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    planned = schedopt.optimize(step, inputs, **options)
    for _ in range(steps):
        planned(*inputs)


def unverified(model, inputs, steps):
    """Do the same without comparing results."""
    optimized(model, inputs, steps, verify=False)


WAYS = {"eager": eager, "import": imported, "optimize": optimized, "verify=False": unverified}


def resident(field):
    """Return MiB of this process by a field of /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure(name, way, steps):
    """Go one way with one model in this process; return a row of numbers."""
    torch.manual_seed(0)
    before = resident("VmRSS")
    WAYS[way](nn.Linear(4, 4), (torch.randn(2, 4),), steps)
    code = resident("VmRSS") - before
    model, inputs = MODELS[name]()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    held, start = resident("VmRSS"), time.perf_counter()
    WAYS[way](model, inputs, steps)
    return {
        "parameters": sum(parameter.nbytes for parameter in model.parameters()) / MIB,
        "raised": resident("VmHWM") - held,
        "seconds": time.perf_counter() - start,
        "code": code,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--way", choices=list(WAYS), help="go one way, in this process, and print JSON")
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.models[0], arguments.way, arguments.steps)))
        return
    print("| model, adam | parameters | way | raised by | of eager | seconds | code |\n|---|---|---|---|---|---|---|")
    for name in arguments.models:
        rows = {}
        for way in WAYS:
            command = [sys.executable, __file__, name, "--way", way, "--steps", str(arguments.steps)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
            if done.returncode:
                raise SystemExit(f"{name}, {way}: failed")
            rows[way] = row = json.loads(done.stdout)
            print(
                f"| {name} | {row['parameters']:.1f} | {way} | {row['raised']:.0f} | "
                f"{row['raised'] / rows['eager']['raised']:.2f} | {row['seconds']:.1f} | {row['code']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
