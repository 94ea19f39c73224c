"""Real models, imported, scheduled, and run in both orders: what was predicted, and what it really took.

usage: python examples/real_programs.py [MODEL..., default all of the table below] [--output FILE, default
       real_programs.csv] [--time-limit SECONDS, default 20] [--repeats N, default 3]

For each model of real_models.py (which says what to install): `schedopt import --costs measured`, `schedopt solve`
and `schedopt measure`, which runs program order and schedule in fresh processes. The CSV gets a row per model, and
models with a row there are not run again. Peaks are in MiB and count what the caller holds all the time (parameters,
buffers, inputs, state of the optimizer); `saved` is the measured reduction of the whole, and of what the order of the
ops can change at all, the rest. A laptop hour: the default takes about half of it.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEDOPT = os.environ.get("SCHEDOPT", "schedopt")
MODELS = (
    ("pnasnet5large", "none"),
    ("nasnetalarge", "none"),
    ("densenet121", "none"),
    ("hrnet_w18_small", "none"),
    ("efficientnet_b0", "none"),
    ("ddpm_unet", "none"),
    ("stable_diffusion_unet", "none"),
    ("t5_small", "none"),
    ("llama", "none"),
    ("mamba", "none"),
    ("resnet50_training", "sgd"),
    ("regnet_training", "sgd"),
    ("convnext_tiny_training", "sgd"),
    ("swin_tiny_training", "sgd"),
    ("vit_small_training", "adam"),
    ("ddpm_unet_training", "adam"),
    ("gpt2_training", "sgd"),
    ("bert_training", "adam"),
    ("llama_training", "sgd"),
    ("bilstm_training", "sgd"),
)
