"""Runs airbench94_muon.py and airbench96_faster.py on a few made-up images, two runs each."""

import contextlib
import io
import json
import os
import random
import runpy
import sys
import uuid
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)


def compiled(model=None, **options):
    """Return a model as it is, with the attribute of a compiled one."""
    if isinstance(model, torch.nn.Module):
        object.__setattr__(model, "_orig_mod", model)
    return (lambda function: function) if model is None else model


torch.compile = compiled
rng = np.random.default_rng(0)
os.mkdir("cifar10")
classes = [f"c{i}" for i in range(10)]
base = rng.integers(0, 256, (10, 4, 4, 3))
for split, count in (("train", 24), ("test", 10)):
    labels = np.arange(count) % 10
    images = base[labels].repeat(8, 1).repeat(8, 2) + rng.integers(-30, 30, (count, 32, 32, 3))
    torch.save(
        {
            "images": torch.tensor(images.clip(0, 255), dtype=torch.uint8),
            "labels": torch.tensor(labels),
            "classes": classes,
        },
        f"cifar10/{split}.pt",
    )


def shrunk(name, *changes):
    """Write a copy of a script with a smaller model and fewer runs."""
    text = Path(name).read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    Path("small_" + name).write_text(text)
    return "small_" + name


def script(name):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    uuid.uuid4 = lambda: "of-" + name
    sys.argv = [name]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        made = runpy.run_path(name, run_name="__main__")
    rows = [line.split("|")[1:-1] for line in said.getvalue().splitlines() if line.startswith("|")]
    return made, rows, torch.load(f"logs/of-{name}/log.pt", map_location="cpu")


muon = shrunk(
    "airbench94_muon.py",
    ("batch_size = 2000", "batch_size = 8"),
    ("range(200)", "range(2)"),
    ("ceil(8 * len(train_loader))", "ceil(2 * len(train_loader))"),
    ("ceil(3 * len(train_loader))", "len(train_loader)"),
    ("widths = dict(block1=64, block2=256, block3=256)", "widths = dict(block1=8, block2=8, block3=8)"),
)
made, rows, log = script(muon)


def size(model):
    return float(sum(p.double().abs().sum() for p in model.state_dict().values()))


result = {
    "accs": log["accs"].tolist(),
    "rows": len(rows),
    "acc": rows[-1][3].strip(),
    "model": size(made["model"]),
}
faster = shrunk(
    "airbench96_faster.py",
    ("range(200)", "range(1)"),
    ("'batch_size': 1024", "'batch_size': 8"),
    ("'batch_size_masked': 512", "'batch_size_masked': 4"),
    ("'train_epochs': 45.0", "'train_epochs': 2.0"),
    ("'block1': 32", "'block1': 8"),
    ("'block2': 64", "'block2': 8"),
    ("'block3': 64", "'block3': 8"),
    ("'block1': 128", "'block1': 8"),
    ("'block2': 384", "'block2': 8"),
    ("'block3': 512", "'block3': 8"),
)
made, rows, log = script(faster)
result |= {
    "accs96": log["accs"].tolist(),
    "rows96": len(rows),
    "loss96": rows[-2][2].strip(),
    "model96": size(made["model_trainbias"]),
}


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print("RESULT " + json.dumps(numbered(result)))
