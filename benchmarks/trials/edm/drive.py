"""train.py trains a small network for a few steps, resumes; generate.py and example.py sample from it."""

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
import torch.utils.data
from PIL import Image

torch.set_num_threads(1)
RealLoader = torch.utils.data.DataLoader


def loader(*args, num_workers=0, prefetch_factor=None, **kwargs):
    return RealLoader(*args, **kwargs)


torch.utils.data.DataLoader = loader
torch.utils.data.Sampler.__init__ = lambda self, data_source=None: None  # as it was before torch 2.2
torch.multiprocessing.set_start_method = lambda name: None
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
for name in ("requests", "psutil"):
    sys.modules[name] = types.ModuleType(name)
memory = types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=0))
sys.modules["psutil"].Process = lambda pid: memory
sys.path.insert(0, ".")
rng = np.random.default_rng(0)
os.makedirs("images")
names = []
for i in range(6):
    pixels = np.clip(rng.integers(0, 100, (8, 8, 3)) + 25 * i, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(f"images/{i}.png")
    names.append([f"{i}.png", i % 2])
with open("images/dataset.json", "w") as file:
    json.dump({"labels": names}, file)


def script(name, *flags):
    """Run a script as if in a process of its own."""
    for each in [each for each in sys.modules if each.split(".")[0] in ("torch_utils", "training", "dnnlib")]:
        del sys.modules[each]
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    with socket.socket() as s:
        s.bind(("localhost", 0))
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(s.getsockname()[1]))
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = [name, *flags]
    out, err = sys.stdout, sys.stderr
    try:
        runpy.run_path(name, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.stdout, sys.stderr = out, err


train = [
    "--outdir",
    "run",
    "--nosubdir",
    "--data",
    "images",
    "--cond",
    "1",
    "--duration",
    "0.001",
    "--batch",
    "500",
]
train += ["--batch-gpu", "250", "--cbase", "4", "--cres", "1,1", "--tick", "1", "--snap", "1", "--dump", "1"]
train += ["--seed", "0", "--augment", "0.5", "--lr", "0.01"]
script("train.py", *train)
script("train.py", *train, "--resume", "run/training-state-000001.pt", "--precond", "edm")
sample = ["--network", "run/network-snapshot-000001.pkl", "--steps", "3"]
script("generate.py", "--outdir", "out", "--seeds", "0-2", "--batch", "2", *sample)
script(
    "generate.py",
    "--outdir",
    "vp",
    "--seeds",
    "5",
    *sample,
    "--solver",
    "euler",
    "--schedule",
    "vp",
    "--scaling",
    "vp",
    "--disc",
    "iddpm",
)
rows = [json.loads(line) for line in Path("run/stats.jsonl").read_text().splitlines()]
state = real_load("run/training-state-000001.pt", map_location="cpu", weights_only=False)


def mean(path):
    return float(np.asarray(Image.open(path), float).mean())


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print(
    "RESULT "
    + json.dumps(
        numbered(
            {
                "rows": len(rows),
                "loss": [row["Loss/loss"]["mean"] for row in rows],
                "net": float(sum(p.double().abs().sum() for p in state["net"].parameters())),
                "images": [mean(f"out/{i:06d}.png") for i in range(3)],
                "vp": mean("vp/000005.png"),
            }
        )
    )
)
