"""Pretrains with main_vicreg.py under SLURM's variables and resumes; evaluates with evaluate.py, twice."""

import builtins
import json
import os
import random
import runpy
import socket
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

torch.set_num_threads(1)
real_print = print
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
slurm = {"SLURM_PROCID": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
processes = []


def spawn(fn, args=(), nprocs=1, **options):
    """Run the processes here, one after the other."""
    processes.append(nprocs)
    for rank in range(nprocs):
        fn(rank, *args)


torch.multiprocessing.spawn = spawn
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, num_workers=0, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})

import resnet  # noqa: E402

resnet.tiny = lambda **k: (resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], **k), 512)

rng = np.random.default_rng(0)
for split, count in (("train", 4), ("val", 3)):
    for c in range(6):
        base = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        os.makedirs(f"data/{split}/c{c}")
        for i in range(count if c < 2 else 1):
            noisy = np.asarray(Image.fromarray(base).resize((64, 64)), int) + rng.integers(
                -30, 30, (64, 64, 3)
            )
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(f"data/{split}/c{c}/{i}.png")


def script(*argv):
    builtins.print = real_print
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")


def log(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines() if line.startswith("{")]


os.environ.update(slurm)
pretrain = [
    "main_vicreg.py",
    "--data-dir",
    "data",
    "--exp-dir",
    "exp",
    "--arch",
    "tiny",
    "--mlp",
    "12-12",
    "--batch-size",
    "4",
    "--base-lr",
    "8",
    "--log-freq-time",
    "-1",
    "--num-workers",
    "0",
]
script(*pretrain, "--epochs", "1")
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):  # which the first run has set
    os.environ.pop(name, None)
script(*pretrain, "--epochs", "2")
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", *slurm):
    os.environ.pop(name, None)
steps = log("exp/stats.txt")

evaluate = [
    "evaluate.py",
    "--data-dir",
    "data",
    "--pretrained",
    "exp/resnet50.pth",
    "--exp-dir",
    "lin",
    "--arch",
    "tiny",
    "--batch-size",
    "4",
    "--lr-head",
    "0.1",
    "--print-freq",
    "1",
    "--workers",
    "0",
]
script(*evaluate, "--epochs", "1")
script(*evaluate, "--epochs", "2", "--weights", "finetune", "--lr-backbone", "0.01", "--exp-dir", "fine")
lin, fine = log("lin/stats.txt"), log("fine/stats.txt")
saved = torch.load("exp/resnet50.pth", map_location="cpu")
tuned = torch.load("fine/checkpoint.pth", map_location="cpu")["model"]
builtins.print = real_print


def size(state):
    return float(sum(v.double().abs().sum() for v in state.values()))


print(
    "RESULT "
    + json.dumps(
        {
            "processes": processes,
            "steps": len(steps),
            "first": steps[0]["loss"],
            "last": steps[-1]["loss"],
            "lr": steps[-1]["lr"],
            "model": size(saved),
            "lin": [x["loss"] for x in lin if "loss" in x][-1],
            "lin_acc5": lin[-1]["acc5"],
            "fine": [x["loss"] for x in fine if "loss" in x][-1],
            "fine_acc1": fine[-1]["acc1"],
            "tuned": size(tuned),
        }
    )
)
