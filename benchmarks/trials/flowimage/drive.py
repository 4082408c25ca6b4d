"""Trains examples/image under SLURM's variables, resumes, evaluates only; continuous, then discrete."""

import json
import os
import random
import runpy
import socket
import sys
import types
from pathlib import Path

import numpy as np
import torch
import torchmetrics  # noqa: F401 (before a part of it is replaced)
from PIL import Image

torch.set_num_threads(1)
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(
    SLURM_PROCID="0", SLURM_JOB_NAME="trial", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=str(port)
)
os.environ.pop("RANK", None)
sys.path[:0] = [os.getcwd(), os.path.join(os.getcwd(), "examples/image")]


class FrechetInceptionDistance(torch.nn.Module):
    """Means instead of an Inception network."""

    def __init__(self, normalize=False, **kwargs):
        super().__init__()
        for name in ("real", "fake"):
            self.register_buffer(name, torch.zeros(3))
            self.register_buffer(f"num_{name}", torch.tensor(0))

    def update(self, images, real):
        name = "real" if real else "fake"
        setattr(self, name, getattr(self, name) + images.mean((2, 3)).sum(0))
        setattr(self, f"num_{name}", getattr(self, f"num_{name}") + len(images))

    def compute(self):
        return (self.real / self.num_real - self.fake / self.num_fake).square().sum()


for name in ("torchmetrics.image", "torchmetrics.image.fid"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].FrechetInceptionDistance = FrechetInceptionDistance
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, num_workers=0, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
from models import model_configs  # noqa: E402

for name, config in model_configs.MODEL_CONFIGS.items():
    config.update(
        model_channels=96 if "discrete" in name else 32,
        num_res_blocks=1,
        channel_mult=[1, 1],
        attention_resolutions=[2],
        num_heads=1,
        num_head_channels=-1,
    )
rng = np.random.default_rng(0)
for c in range(2):
    os.makedirs(f"data/c{c}")
    for i in range(4):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(f"data/c{c}/{i}.png")


def train(output, *argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = [
        "train.py",
        "--dataset",
        "imagenet",
        "--data_path",
        "data",
        "--output_dir",
        output,
        "--batch_size",
        "2",
        "--lr",
        "1e-3",
        "--ode_options",
        '{"step_size": 0.5}',
        "--fid_samples",
        "4",
        "--compute_fid",
        "--eval_frequency",
        "1",
        "--num_workers",
        "0",
        *argv,
    ]
    runpy.run_path("examples/image/train.py", run_name="__main__")
    torch.distributed.destroy_process_group()
    return [json.loads(line) for line in Path(f"{output}/log.txt").read_text().splitlines()]


train("out", "--epochs", "2", "--use_ema", "--accum_iter", "2")
log = train(
    "out", "--epochs", "3", "--use_ema", "--accum_iter", "2", "--resume", "out/checkpoint.pth", "--decay_lr"
)
only = train(
    "out2",
    "--eval_only",
    "--use_ema",
    "--resume",
    "out/checkpoint.pth",
    "--edm_schedule",
    "--ode_options",
    '{"nfe": 3}',
    "--ode_method",
    "edm_heun" if False else "euler",
    "--save_fid_samples",
)
discrete = train(
    "out3",
    "--epochs",
    "1",
    "--discrete_flow_matching",
    "--discrete_fm_steps",
    "3",
    "--cfg_scale",
    "0",
    "--sym_func",
)
saved = torch.load("out/checkpoint.pth", map_location="cpu")
print(
    "RESULT "
    + json.dumps(
        {
            "epochs": len(log),
            "first": log[0]["train_loss"],
            "last": log[-1]["train_loss"],
            "fid": log[-1]["eval_fid"],
            "model": float(sum(v.double().abs().sum() for v in saved["model"].values())),
            "epoch": saved["epoch"],
            "only": only[-1]["eval_fid"],
            "samples": len(os.listdir("out2/fid_samples")),
            "discrete": discrete[-1]["train_loss"],
            "discrete_fid": discrete[-1]["eval_fid"],
        }
    )
)
