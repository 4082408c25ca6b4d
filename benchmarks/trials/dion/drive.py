"""Trains with train.py under torchrun's variables, with three optimizers of the repository; resumes one."""

import json
import os
import random
import runpy
import socket
import sys
import types

os.environ.update(TORCHDYNAMO_DISABLE="1")
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
torch.cuda.is_current_stream_capturing = lambda: (
    False
)  # asked only where CUDA is available; the emulation lacks it
logged = []
wandb = types.ModuleType("wandb")
wandb.login = lambda **k: None
wandb.run = types.SimpleNamespace(id="trial")
wandb.init = lambda **k: wandb.run
wandb.log = logged.append
sys.modules["wandb"] = wandb

rng = np.random.default_rng(0)
os.mkdir("tokens")
for split, count in (("train", 4000), ("val", 2000)):
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, count
    walk = np.cumsum(rng.integers(0, 3, count)) % 50
    with open(f"tokens/fineweb_{split}_000001.bin", "wb") as f:
        f.write(header.tobytes() + walk.astype(np.uint16).tobytes())


Path("tiny.yaml").write_text("val_tokens: 128\nval_loss_every: 3\n")
from models import gpt_model  # noqa: E402

real_config = gpt_model.GPTConfig
gpt_model.GPTConfig = lambda vocab_size, **k: real_config(vocab_size=64, **k)


def train(*argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = [
        "train.py",
        "--config",
        "tiny.yaml",
        "--data_dir",
        "tokens",
        "--model_dim",
        "32",
        "--n_layer",
        "2",
        "--n_head",
        "2",
        "--batch_size",
        "4",
        "--device_batch_size",
        "2",
        "--sequence_length",
        "16",
        "--warmup_ratio",
        "0.2",
        "--no_compile",
        "--no_triton",
        "--lr",
        "0.02",
        *argv,
    ]
    start = len(logged)
    runpy.run_path("train.py", run_name="__main__")
    return logged[start:]


result = {}
for name, options in (
    ("dion_simple", []),
    ("muon", ["--adjust_lr", "rms_norm", "--time_optimizer"]),
    ("normuon", ["--scalar_opt", "adamw", "--adjust_lr", "spectral_norm"]),
):
    lines = train("--optimizer", name, "--num_iterations", "6", *options)
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    norms = [line["train/grad_norm"] for line in lines if "train/grad_norm" in line]
    val = [line["val/loss"] for line in lines if "val/loss" in line]
    result |= {
        name: losses[-1],
        f"{name}_first": losses[0],
        f"{name}_norm": norms[-1],
        f"{name}_val": val[-1],
        f"{name}_lines": len(lines),
    }
kept = [
    "--optimizer",
    "muon",
    "--adjust_lr",
    "rms_norm",
    "--checkpoint_dir",
    "kept",
    "--checkpoint_freq",
    "2",
]
train(*kept, "--num_iterations", "4")
lines = train(*kept, "--num_iterations", "6")
result |= {
    "resumed": lines[-1]["val/loss"],
    "resumed_lines": len(lines),
    "steps": sorted(os.listdir("kept"))[-1],
}
print("RESULT " + json.dumps(result))
