"""Pretrains with main.py under SLURM's variables, resumes, and trains a linear probe with main_linear.py."""

import builtins
import gzip
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
from PIL import Image

torch.set_num_threads(1)
torch.manual_seed(0)
real_print = print
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(SLURM_PROCID="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))

# ---- a vocabulary of bytes, no wandb, no ftfy; a registry where timm now keeps it
with gzip.open("bpe_simple_vocab_16e6.txt.gz", "wt") as f:
    f.write("version\nt h\nth e</w>\ni n\n")
for name, content in (("wandb", {}), ("ftfy", {"fix_text": lambda text: text})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(content)
import timm  # noqa: E402

if not hasattr(timm.models, "registry"):
    timm.models.registry = timm.models._registry
vit = timm.models.vision_transformer
tiny = {"img_size": 224, "patch_size": 56, "embed_dim": 16, "depth": 1, "num_heads": 2}


@timm.models.register_model
def vit_of_the_trial(
    pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, num_classes=1000
):
    return vit.VisionTransformer(num_classes=num_classes, **tiny)


import models  # noqa: E402

models.SLIP_TRIAL = lambda **k: models.SLIP(
    embed_dim=12,
    vision_width=16,
    vision_model=vit_of_the_trial(num_classes=0),
    context_length=77,
    vocab_size=600,
    transformer_width=16,
    transformer_heads=2,
    transformer_layers=1,
    **k,
)
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, num_workers=0, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})

# ---- made-up images, captions, labels
rng = np.random.default_rng(0)
os.makedirs("coco/train2017")
notes = []
for i in range(8):
    image = rng.integers(0, 256, (48, 40, 3), dtype=np.uint8)
    Image.fromarray(image).save(f"coco/train2017/{i:012d}.jpg")
    notes += [{"image_id": i, "caption": f"the thing {i}"}, {"image_id": i, "caption": f"one in {i * i}"}]
Path("coco/notes.json").write_text(json.dumps({"annotations": notes}))
for split, count in (("train", 4), ("val", 3)):
    for c in range(3):
        base = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        os.makedirs(f"images/{split}/c{c}")
        for i in range(count):
            noisy = np.asarray(Image.fromarray(base).resize((40, 40)), int) + rng.integers(
                -30, 30, (40, 40, 3)
            )
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(f"images/{split}/c{c}/{i}.png")
catalog = {"imagenet": {"path": "images", "type": "imagefolder", "train": "train", "test": "val"}}
Path("dataset_catalog.json").write_text(json.dumps(catalog))
Path("labels.json").write_text(json.dumps({"imagenet": [f"kind {i}" for i in range(6)]}))
Path("templates.json").write_text(json.dumps({"imagenet": ["a {}", "the {}"]}))


def script(*argv):
    builtins.print = real_print
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    random.seed(0)
    np.random.seed(0)
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")


def log(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


common = ["--output-dir", "out", "--batch-size", "4", "--workers", "0", "--print-freq", "1"]
os.mkdir("out")
pretrain = [
    "main.py",
    "--dataset",
    "coco",
    "--root",
    "coco",
    "--metadata",
    "coco/notes.json",
    "--model",
    "SLIP_TRIAL",
    "--ssl-mlp-dim",
    "16",
    "--ssl-emb-dim",
    "8",
    *common,
]
script(*pretrain, "--epochs", "2")
script(*pretrain, "--epochs", "3")  # goes on from the checkpoint
epochs = log("out/log.txt")
script(
    "main_linear.py",
    "--arch",
    "vit_of_the_trial",
    "--pretrained",
    "out/checkpoint.pt",
    "--dataset",
    "imagenet",
    "--epochs",
    "2",
    "--eval-freq",
    "1",
    "--lr",
    "10",
    "--seed",
    "3",
    *common,
)
linear = log("out/linear_imagenet_lr=10.0_log.txt")
script(
    "main_linear.py",
    "--arch",
    "vit_of_the_trial",
    "--pretrained",
    "out/checkpoint.pt",
    "--dataset",
    "imagenet",
    "--evaluate",
    "--seed",
    "3",
    *common,
)
saved = torch.load("out/checkpoint.pt", map_location="cpu")
probe = torch.load("out/linear_checkpoint.pt", map_location="cpu")
builtins.print = real_print


def size(state):
    return float(sum(v.double().abs().sum() for v in state.values()))


print(
    "RESULT "
    + json.dumps(
        {
            "epochs": len(epochs),
            "first": epochs[0]["train_loss"],
            "last": epochs[-1]["train_loss"],
            "ssl": epochs[-1]["train_ssl_loss"],
            "acc1": epochs[-1]["test_acc1"],
            "model": size(saved["state_dict"]),
            "next": saved["epoch"],
            "probe": linear[-1]["train_loss"],
            "probe_test": linear[-1]["test_loss"],
            "probe_acc": linear[-1]["test_acc1"],
            "probe_model": size(probe["state_dict"]),
        }
    )
)
