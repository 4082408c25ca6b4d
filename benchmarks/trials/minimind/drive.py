"""Pretrains a small model as one process of torchrun for a few steps, and resumes."""

import contextlib
import json
import os
import random
import runpy
import socket
import sys
import types

import torch
import torch.utils.data

torch.set_num_threads(1)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
torch.cuda.amp.autocast = lambda *a, **k: contextlib.nullcontext()  # the CPU has no mixed precision here
words = "one two three four five six seven eight nine ten".split()
random.seed(0)
texts = [{"text": " ".join(random.choices(words, k=12))} for _ in range(12)]
datasets = types.ModuleType("datasets")
datasets.load_dataset = lambda *a, **k: texts
datasets.Features = datasets.Sequence = datasets.Value = None
sys.modules["datasets"] = datasets
os.chdir("trainer")
sys.path.insert(0, "..")
losses = []
real_clip = torch.nn.utils.clip_grad_norm_


def clip(parameters, *args):
    norm = real_clip(parameters, *args)
    losses.append(float(norm))
    return norm


torch.nn.utils.clip_grad_norm_ = clip


def train(epochs, *flags):
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = str(s.getsockname()[1])
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=port)
    sys.argv = ["train_pretrain.py", "--batch_size", "4", "--num_workers", "0", "--accumulation_steps", "1"]
    sys.argv += ["--hidden_size", "32", "--num_hidden_layers", "2", "--max_seq_len", "24"]
    sys.argv += ["--epochs", str(epochs), "--learning_rate", "0.01", "--log_interval", "1", *flags]
    runpy.run_path("train_pretrain.py", run_name="__main__")


train(1)
train(2, "--from_resume", "1")
state = torch.load("../checkpoints/pretrain_32_resume.pth", map_location="cpu")
moments = [v for each in state["optimizer"]["state"].values() for v in each.values() if v.dim()]
result = {f"norm {i}": norm for i, norm in enumerate(losses)}
result |= {"epoch": state["epoch"], "step": state["step"]}
result["weights"] = float(sum(v.double().abs().sum() for v in state["model"].values()))
result["moments"] = float(sum(v.double().abs().sum() for v in moments))
print("RESULT " + json.dumps(result))
