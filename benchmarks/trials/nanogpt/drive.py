"""Trains with train.py, resumes under torchrun's variables, and samples from the checkpoint."""

import builtins
import json
import os
import pickle
import runpy
import socket
import sys
import types

import numpy as np
import torch

torch.set_num_threads(1)
sys.modules["tiktoken"] = types.ModuleType("tiktoken")
os.makedirs("data/tiny")
letters = "\nabcdefghijklmnopqrstuvwxyz"
rng = np.random.default_rng(0)
for split in ("train", "val"):
    rng.integers(0, len(letters), 400).astype(np.uint16).tofile(f"data/tiny/{split}.bin")
with open("data/tiny/meta.pkl", "wb") as file:
    numbered = dict(enumerate(letters))
    pickle.dump({"vocab_size": 27, "itos": numbered, "stoi": {c: i for i, c in numbered.items()}}, file)

sizes = "--dataset=tiny --compile=False --eval_iters=2 --eval_interval=2 --gradient_accumulation_steps=2"
sizes += " --batch_size=3 --block_size=16 --n_layer=2 --n_head=2 --n_embd=32 --always_save_checkpoint=True"
sizes += " --learning_rate=0.01 --warmup_iters=1 --dtype=float32"


def run(script, *argv):
    sys.argv = [script, *argv]
    return runpy.run_path(script, run_name="__main__")


first = run("train.py", *sizes.split(), "--max_iters=4")
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
second = run("train.py", *sizes.split(), "--max_iters=6", "--init_from=resume")
said, real_print = [], builtins.print
builtins.print = lambda *a, **k: said.append(" ".join(map(str, a)))
run("sample.py", "--num_samples=2", "--max_new_tokens=20", "--start=abc", "--dtype=float32")
builtins.print = real_print
print(
    "RESULT "
    + json.dumps(
        {
            "loss": first["lossf"],
            "val": float(first["losses"]["val"]),
            "loss_resumed": second["lossf"],
            "steps": second["iter_num"],
            "model": float(sum(p.double().abs().sum() for p in second["raw_model"].parameters())),
            "said": sum(i * ord(c) for i, c in enumerate("".join(said))),
        }
    )
)
