"""Trains a tokenizer, rebuilds pictures, extracts codes, trains a model on them, and samples from it."""

import functools
import glob
import json
import logging
import os
import random
import re
import runpy
import socket
import sys
import types

import numpy as np
import torch
from PIL import Image
from torch import nn

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
torch.compile = lambda model, **options: model
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})


class LPIPS(nn.Module):
    """A fixed small network in the place of VGG."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(4)
        self.layer = nn.Conv2d(3, 4, 8, 8)
        for p in self.parameters():
            p.data.copy_(torch.randn(p.shape, generator=g) * 0.1)
            p.requires_grad = False

    def forward(self, a, b):
        return (self.layer(a) - self.layer(b)).square().mean((1, 2, 3), keepdim=True)


stub = types.ModuleType("tokenizer.tokenizer_image.lpips")
stub.LPIPS = LPIPS
sys.modules[stub.__name__] = stub

from tokenizer.tokenizer_image import vq_loss, vq_model  # noqa: E402

for name in ("Encoder", "Decoder"):
    setattr(vq_model, name, functools.partial(getattr(vq_model, name), ch=32, num_res_blocks=1))
vq_model.VQ_models["VQ-16"] = lambda **k: vq_model.VQModel(
    vq_model.ModelArgs(encoder_ch_mult=[1, 1, 1, 1, 2], decoder_ch_mult=[1, 1, 1, 1, 2], z_channels=32, **k)
)
vq_loss.PatchGANDiscriminator = functools.partial(vq_loss.PatchGANDiscriminator)
real_patch = vq_loss.PatchGANDiscriminator
vq_loss.PatchGANDiscriminator = lambda input_nc, n_layers, ndf: real_patch(input_nc, n_layers=2, ndf=8)

from autoregressive.models import gpt  # noqa: E402

gpt.GPT_models["GPT-B"] = lambda **k: gpt.Transformer(
    gpt.ModelArgs(n_layer=2, n_head=2, dim=32, multiple_of=16, **k)
)

from dataset import imagenet  # noqa: E402

real_init = imagenet.CustomDataset.__init__


def init(self, *a):
    real_init(self, *a)
    count = len(os.listdir(self.feature_dir))
    self.feature_files, self.label_files = self.feature_files[:count], self.label_files[:count]


imagenet.CustomDataset.__init__ = init

noise = np.random.default_rng(0)
for c in "ab":
    os.makedirs(f"pictures/{c}")
    for i in range(2):
        small = Image.fromarray(noise.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        small.resize((260, 256)).save(f"pictures/{c}/{i}.png")


def script(path, *argv):
    sys.argv = [path, *argv]
    torch.set_grad_enabled(True)  # two scripts turn it off for good
    for handler in logging.root.handlers[:]:  # the next script logs to its own file
        logging.root.removeHandler(handler)
    runpy.run_path(path, run_name="__main__")


def losses(folder):
    with open(f"{folder}/log.txt") as log:
        return [float(x) for x in re.findall(r"Train Loss: ([-\d.]+)", log.read())]


def size(state):
    return float(sum(v.double().abs().sum() for v in state.values() if v.is_floating_point()))


def moments(state):
    return float(sum(v.double().abs().sum() for s in state["state"].values() for v in s.values()))


codebook = ["--codebook-size", "64", "--codebook-embed-dim", "4"]
script(
    "tokenizer/tokenizer_image/vq_train.py",
    "--data-path",
    "pictures",
    "--cloud-save-path",
    "cloud",
    "--ema",
    *codebook,
    "--epochs",
    "1",
    "--global-batch-size",
    "2",
    "--log-every",
    "1",
    "--ckpt-every",
    "2",
    "--lr",
    "0.001",
    "--disc-start",
    "2",
    "--disc-weight",
    "0.5",
)
first = losses("results_tokenizer_image/000-VQ-16")
vq = "results_tokenizer_image/000-VQ-16/checkpoints/0000002.pt"
saved = torch.load(vq, map_location="cpu")
result = {
    "vq_steps": len(first),
    "vq_first": first[0],
    "vq_last": first[-1],
    "vq": size(saved["model"]),
    "vq_ema": size(saved["ema"]),
    "disc": size(saved["discriminator"]),
    "vq_adam": moments(saved["optimizer"]),
}

script(
    "tokenizer/tokenizer_image/vq_train.py",
    "--data-path",
    "pictures",
    "--cloud-save-path",
    "cloud",
    "--ema",
    *codebook,
    "--epochs",
    "2",
    "--global-batch-size",
    "2",
    "--log-every",
    "1",
    "--ckpt-every",
    "3",
    "--lr",
    "0.001",
    "--disc-start",
    "1",
    "--vq-ckpt",
    vq,
    "--results-dir",
    "again",
    "--mixed-precision",
    "none",
)
result["vq_resumed"] = losses("again/000-VQ-16")[0]

from skimage import metrics  # noqa: E402

with open("tokenizer/tokenizer_image/reconstruction_vq_ddp.py") as file:
    assert "num_fid_samples = 50000" in file.read()
real_range = range
import builtins  # noqa: E402

builtins.range = lambda *a: real_range(4) if a == (50000,) else real_range(*a)
real_stack = np.stack
seen = []


def stack(arrays, *a, **k):
    out = real_stack(arrays, *a, **k)
    if out.dtype == np.uint8:
        seen.append(out.astype(float))
    return out


np.stack = stack
real_ssim = metrics.structural_similarity
metrics.structural_similarity = lambda *a, multichannel=None, **k: real_ssim(*a, **k)
try:
    script(
        "tokenizer/tokenizer_image/reconstruction_vq_ddp.py",
        "--data-path",
        "pictures",
        "--vq-ckpt",
        vq,
        *codebook,
        "--per-proc-batch-size",
        "2",
    )
except AssertionError:  # the count of 50,000 images is fixed in the program
    torch.distributed.destroy_process_group()
builtins.range = real_range
with open(glob.glob("reconstructions/*_results.txt")[0]) as file:
    psnr, ssim = re.findall(r"[\d.]+", file.read())
result.update(psnr=float(psnr), ssim=float(ssim), rebuilt=seen[-1].mean())

script(
    "autoregressive/train/extract_codes_c2i.py",
    "--data-path",
    "pictures",
    "--code-path",
    "codes",
    "--vq-ckpt",
    vq,
    *codebook,
)
codes = [np.load(f) for f in sorted(glob.glob("codes/imagenet256_codes/*.npy"))]
result.update(codes=len(codes), shape=list(codes[0].shape))

# a code is that of the nearest of many close vectors, which rounding decides: train on others
for name, code in zip(sorted(glob.glob("codes/imagenet256_codes/*.npy")), codes):
    np.save(name, noise.integers(0, 64, code[:, :1].shape).astype(code.dtype))
sizes = ["--vocab-size", "64", "--num-classes", "5"]
script(
    "autoregressive/train/train_c2i.py",
    "--code-path",
    "codes",
    "--cloud-save-path",
    "cloud",
    "--ema",
    *sizes,
    "--epochs",
    "2",
    "--global-batch-size",
    "2",
    "--log-every",
    "1",
    "--ckpt-every",
    "2",
    "--lr",
    "0.01",
    "--no-compile",
)
second = losses("results/000-GPT-B")
ar = "results/000-GPT-B/checkpoints/0000002.pt"
saved = torch.load(ar, map_location="cpu")
result.update(
    ar_steps=len(second),
    ar_first=second[0],
    ar_last=second[-1],
    ar=size(saved["model"]),
    ar_ema=size(saved["ema"]),
)
script(
    "autoregressive/train/train_c2i.py",
    "--code-path",
    "codes",
    "--cloud-save-path",
    "cloud",
    "--ema",
    *sizes,
    "--epochs",
    "2",
    "--global-batch-size",
    "2",
    "--log-every",
    "1",
    "--ckpt-every",
    "9",
    "--lr",
    "0.01",
    "--gpt-ckpt",
    ar,
    "--no-compile",
    "--drop-path-rate",
    "0.1",
)
result["ar_resumed"] = losses("results/001-GPT-B")[0]

for precision, count in (("bf16", "2"), ("none", "1")):
    script(
        "autoregressive/sample/sample_c2i_ddp.py",
        "--gpt-ckpt",
        ar,
        "--vq-ckpt",
        vq,
        *codebook,
        "--num-classes",
        "5",
        "--image-size",
        "256",
        "--downsample-size",
        "16",
        "--per-proc-batch-size",
        count,
        "--num-fid-samples",
        count,
        "--precision",
        precision,
        "--cfg-scale",
        "2.0",
        "--top-k",
        "20",
        "--sample-dir",
        precision,
    )
    with np.load(glob.glob(f"{precision}/*.npz")[0]) as made:
        images = made["arr_0"].astype(float)
    result.update(
        {precision + "_n": len(images), precision + "_mean": images.mean(), precision + "_std": images.std()}
    )
print("RESULT " + json.dumps(result))
