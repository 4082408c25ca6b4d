"""Trains with train.py under torchrun's variables, resumes without them, samples, and exports."""

import builtins
import json
import os
import runpy
import socket
import sys
import types

import numpy as np
import torch

torch.set_num_threads(1)
rng = np.random.default_rng(0)
os.makedirs("data/tok64")
for i in range(3):
    rng.integers(0, 64, 300).astype(np.uint16).tofile(f"data/tok64/data{i:02d}.bin")


class Tokens:
    """Numbers in the place of a vocabulary."""

    def __init__(self, tokenizer_model=None):
        pass

    def encode(self, text, bos, eos):
        return [1] * bos + [3 + ord(c) % 60 for c in text] + [2] * eos

    def decode(self, numbers):
        return " ".join(map(str, numbers))


for name in ("requests", "sentencepiece"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["sentencepiece"].SentencePieceProcessor = object
made = types.ModuleType("tokenizer")
made.Tokenizer = Tokens
sys.modules["tokenizer"] = made
import tinystories  # noqa: E402

tinystories.DATA_CACHE_DIR = "data"
sizes = (
    "--vocab_source=custom --vocab_size=64 --max_seq_len=16 --dim=32 --n_layers=2 --n_heads=2 --n_kv_heads=2"
)
sizes += " --batch_size=3 --gradient_accumulation_steps=2 --eval_interval=2 --eval_iters=2 --compile=False"
sizes += " --learning_rate=0.01 --warmup_iters=1 --always_save_checkpoint=True"


def run(script, *argv):
    sys.argv = [script, *argv]
    return runpy.run_path(script, run_name="__main__")


with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
torchrun = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
os.environ.update(**torchrun, MASTER_ADDR="localhost", MASTER_PORT=str(port))
first = run("train.py", *sizes.split(), "--max_iters=4")
for name in torchrun:
    del os.environ[name]
second = run("train.py", *sizes.split(), "--max_iters=6", "--init_from=resume", "--dtype=float32")
said, real_print = [], builtins.print
builtins.print = lambda *a, **k: said.append(" ".join(map(str, a)))
run("sample.py", "--num_samples=2", "--max_new_tokens=12", "--start=hello")
builtins.print = real_print
print(
    "RESULT "
    + json.dumps(
        {
            "loss": first["lossf"],
            "loss_resumed": second["lossf"],
            "val": float(second["losses"]["val"]),
            "steps": second["iter_num"],
            "model": float(sum(p.double().abs().sum() for p in second["raw_model"].parameters())),
            "exported": float(np.abs(np.fromfile("out/model.bin", np.float32)[7:]).sum()),
            "said": sum(i * ord(c) for i, c in enumerate("".join(said))),
        }
    )
)
