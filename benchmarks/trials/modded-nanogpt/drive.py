"""Runs train_gpt2.py under torchrun's variables, with a small model and few steps."""

import builtins
import glob
import json
import os
import random
import re
import socket
import subprocess
import sys
import types

import numpy as np
import torch

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
torch.compile = lambda f=None, **k: f if f is not None else lambda g: g
subprocess.run = lambda *a, **k: types.SimpleNamespace(stdout="")
os.makedirs("data/fineweb10B")
rng = np.random.default_rng(0)
for name in ("train_000001", "val_000000"):
    head = np.zeros(256, np.int32)
    head[:3] = 20240520, 1, 400
    with open(f"data/fineweb10B/fineweb_{name}.bin", "wb") as file:
        file.write(head.tobytes() + rng.integers(0, 200, 400).astype(np.uint16).tobytes())

with open("train_gpt2.py") as file:
    source = file.read()
for old, new in (
    ("n_layer=12, n_head=12, n_embd=768", "n_layer=2, n_head=2, n_embd=32"),
    (r"num_vocab = \d+", "num_vocab = 256"),
    (r"batch_size : int = 8\*64", "batch_size : int = 4"),
    ("device_batch_size : int = 64", "device_batch_size : int = 2"),
    ("sequence_length : int = 1024", "sequence_length : int = 16"),
    (r"num_iterations : int = \d+", "num_iterations : int = 4"),
    (r"warmdown_iters : int = \d+", "warmdown_iters : int = 2"),
    (r"val_loss_every : int = \d+", "val_loss_every : int = 2"),
    (r"val_tokens : int = \d+", "val_tokens : int = 64"),
):
    source, count = re.subn(old, new, source)
    assert count == 1, old
with open("train_small.py", "w") as file:
    file.write(source)

said, real_print = [], builtins.print
builtins.print = lambda *a, **k: said.append(" ".join(map(str, a)))
sys.argv = ["train_small.py"]
import runpy  # noqa: E402

runpy.run_path("train_small.py", run_name="__main__")
builtins.print = real_print
losses = [float(line.split("train_loss:")[1].split()[0]) for line in said if "train_loss:" in line]
checked = [float(line.split("val_loss:")[1].split()[0]) for line in said if "val_loss:" in line]
saved = torch.load(glob.glob("logs/*/state_step000004.pt")[0], weights_only=False, map_location="cpu")
print(
    "RESULT "
    + json.dumps(
        {
            "steps": len(losses),
            "first": losses[0],
            "last": losses[-1],
            "val": checked[0],
            "val_end": checked[-1],
            "model": float(sum(v.double().abs().sum() for v in saved["model"].values())),
        }
    )
)
