"""Caches latents with main_cache.py, trains with main_mar.py, evaluates, resumes, and evaluates by itself."""

import builtins
import functools
import glob
import json
import os
import random
import runpy
import socket
import sys
import time
import types

import cv2
import numpy as np
import torch
from PIL import Image
from torch import nn

torch.set_num_threads(1)
real_print = builtins.print
time.sleep = lambda seconds: None
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
logged = []


class SummaryWriter:
    def __init__(self, log_dir):
        self.log_dir = log_dir

    def add_scalar(self, name, value, step):
        logged.append((name, float(value)))

    def flush(self):
        pass


def calculate_metrics(input1, cuda, **options):
    pixels = np.stack([cv2.imread(f) for f in sorted(glob.glob(f"{input1}/*.png"))]).astype(float)
    assert cuda in (torch.cuda.is_available(), None), cuda  # the library refuses it without a GPU
    return {"frechet_inception_distance": pixels.mean(), "inception_score_mean": pixels.std()}


for name, content in (
    ("torch.utils.tensorboard", {"SummaryWriter": SummaryWriter}),
    ("torch_fidelity", {"calculate_metrics": calculate_metrics}),
):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(content)

import models.mar  # noqa: E402
import models.vae  # noqa: E402


class Autoencoder(nn.Module):
    """A layer in the place of the autoencoder."""

    def __init__(self, embed_dim, ch_mult, ckpt_path):
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.down, self.up = nn.Conv2d(3, 2 * embed_dim, 16, 16), nn.ConvTranspose2d(embed_dim, 3, 16, 16)
        for p in self.parameters():
            p.data.copy_(torch.randn(p.shape, generator=g) * 0.1)

    def encode(self, x):
        return models.vae.DiagonalGaussianDistribution(self.down(x))

    def decode(self, z):
        return self.up(z)


models.vae.AutoencoderKL = Autoencoder
models.mar.mar_base = functools.partial(
    models.mar.MAR, encoder_embed_dim=24, encoder_depth=1, encoder_num_heads=2, decoder_embed_dim=24,
    decoder_depth=1, decoder_num_heads=2, mlp_ratio=2, norm_layer=nn.LayerNorm,
)  # fmt: skip
rng = np.random.default_rng(0)
for c in "ab":
    os.makedirs(f"data/train/{c}")
    for i in range(2):
        Image.fromarray(rng.integers(0, 256, (270, 260, 3), dtype=np.uint8)).save(f"data/train/{c}/{i}.png")


def script(*argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")
    builtins.print = real_print
    torch.distributed.destroy_process_group()


common = "--data_path data --num_workers 0 --vae_embed_dim 4".split()
model = (
    "--model mar_base --diffloss_d 1 --diffloss_w 16 --num_sampling_steps 2 --num_iter 2 --num_images 2 --class_num 2"
    " --eval_bsz 2 --batch_size 2 --blr 0.1 --warmup_epochs 0 --buffer_size 4 --diffusion_batch_mul 1 --ema_rate 0.9"
).split()
script("main_cache.py", *common, "--batch_size", "2", "--cached_path", "cached")
cached = [np.load(f)["moments"] for f in sorted(glob.glob("cached/*/*.npz"))]
result = {"cached": float(np.abs(cached).sum())}
script(
    "main_mar.py", *common, *model, "--epochs", "1", "--output_dir", "made", "--online_eval", "--cfg", "2.0",
    "--use_cached", "--cached_path", "cached",
)  # fmt: skip
result.update({f"{name}_{i}": value for i, (name, value) in enumerate(logged)})
saved = torch.load("made/checkpoint-last.pth", map_location="cpu")
result["ema"] = float(sum(v.double().abs().sum() for v in saved["model_ema"].values()))
logged.clear()
script("main_mar.py", *common, *model, "--epochs", "2", "--output_dir", "made", "--resume", "made")
result.update({f"again_{name}_{i}": value for i, (name, value) in enumerate(logged)})
logged.clear()
script("main_mar.py", *common, *model, "--evaluate", "--output_dir", "made", "--resume", "made")
result.update({f"only_{name}_{i}": value for i, (name, value) in enumerate(logged)})
real_print("RESULT " + json.dumps(result))
