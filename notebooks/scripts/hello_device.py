"""Add some numbers on the device the user chose. Lesson 01 reads and runs this file."""

import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--device", default="auto", help="such as cpu or cuda:0; default: the best"
)
parser.add_argument("--disable-cuda", action="store_true", help="ignore any NVIDIA GPU")
options = parser.parse_args()

if options.device == "auto":
    use_cuda = torch.cuda.is_available() and not options.disable_cuda
    options.device = "cuda" if use_cuda else "cpu"
device = torch.device(options.device)

x = torch.arange(1_000, device=device)
print(f"sum of 0 to 999 on {device.type}: {x.sum().item()}")
