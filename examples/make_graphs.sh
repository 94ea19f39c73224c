#!/usr/bin/env bash
# Makes the graphs of examples/graphs again, into that folder or the one given as the argument.
set -euo pipefail

out=${1:-$(dirname "$0")/graphs}
mkdir -p "$out"

# Random graphs: layered as in Topoformer's appendix A, synthetic as in REGAL's A.1.4.
schedopt gen layered --nodes 50 "$out/layered-50.pbtxt"
schedopt gen layered --nodes 500 "$out/layered-500.pb.gz"
schedopt gen synthetic --model watts-strogatz --nodes 100 "$out/watts-strogatz-100.pb.gz"

# Networks. A microcontroller keeps the parameters in flash, so only activations count in the first.
schedopt gen architecture nasnet-a-mobile --no-weights "$out/nasnet-a-mobile.pb.gz"
schedopt gen architecture nasnet-a-mobile --training "$out/nasnet-a-mobile-training.pb.gz"
schedopt gen architecture resnet50 --training "$out/resnet50-training.pb.gz"
schedopt gen architecture unet "$out/unet.pb.gz"
