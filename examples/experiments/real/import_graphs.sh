#!/usr/bin/env bash
# Imports the graphs of real models in examples/graphs again, into that folder or the one given as the argument.
# Needs `pip install timm diffusers transformers`; the models have random weights, and nothing is downloaded.
set -euo pipefail

out=$(realpath "${1:-$(dirname "$0")/../../graphs}")
mkdir -p "$out"
cd "$(dirname "$0")"

schedopt import models:pnasnet5large --output "$out/pnasnet5large.pb.gz"
schedopt import models:ddpm_unet --output "$out/ddpm-unet.pb.gz"
schedopt import models:swin_tiny_training --training sgd --output "$out/swin-tiny-sgd.pb.gz"
schedopt import models:gpt2_training --training sgd --output "$out/gpt2-sgd.pb.gz"
schedopt import models:bert_training --training adam --output "$out/bert-adam.pb.gz"
schedopt import models:bilstm_training --training sgd --output "$out/bilstm-sgd.pb.gz"
