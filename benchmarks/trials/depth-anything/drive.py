"""metric_depth/train.py for two epochs, then run.py predicts depth with the weights."""

import glob
import json
import os
import runpy
import socket
import sys
import types

import cv2
import h5py
import numpy as np
import torch

np.RankWarning = UserWarning
LOGGED = {}


class SummaryWriter:
    def __init__(self, path):
        os.makedirs(path, exist_ok=True)

    def add_scalar(self, tag, value, step):
        LOGGED[tag, step] = float(value)


board = types.ModuleType("torch.utils.tensorboard")
board.SummaryWriter = SummaryWriter
sys.modules["torch.utils.tensorboard"] = board
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader
os.chdir("metric_depth")
sys.path.insert(0, os.getcwd())

# ---- a small encoder
from depth_anything_v2 import dinov2  # noqa: E402

plain_init = dinov2.DinoVisionTransformer.__init__


def small(self, *args, **kwargs):
    plain_init(
        self,
        *args,
        **{**kwargs, "img_size": 70, "embed_dim": 384, "depth": 12, "num_heads": 6, "mlp_ratio": 0.1},
    )


dinov2.DinoVisionTransformer.__init__ = small
rng = np.random.default_rng(6)
os.makedirs("made")
for part, number in (("train", 4), ("val", 2)):
    lines = []
    for i in range(number):
        cv2.imwrite(
            f"made/{part}{i}.png", cv2.resize(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8), (1024, 768))
        )
        with h5py.File(f"made/{part}{i}.h5", "w") as file:
            far = cv2.resize(rng.uniform(1, 15, (6, 8)).astype(np.float32), (1024, 768))
            file["dataset"] = far
        lines.append(f"made/{part}{i}.png made/{part}{i}.h5")
    os.makedirs("dataset/splits/hypersim", exist_ok=True)
    with open(f"dataset/splits/hypersim/{part}.txt", "w") as file:
        file.write("\n".join(lines))

with socket.socket() as s:
    s.bind(("localhost", 0))
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(s.getsockname()[1])
    )
torch.manual_seed(8)
np.random.seed(8)
import random  # noqa: E402

random.seed(8)
sys.argv = [
    "train.py",
    "--encoder",
    "vits",
    "--epochs",
    "2",
    "--bs",
    "2",
    "--img-size",
    "70",
    "--lr",
    "0.00002",
    "--save-path",
    "saved",
]
runpy.run_path("train.py", run_name="__main__")
saved = torch.load("saved/latest.pth", map_location="cpu", weights_only=False)
torch.save({name.removeprefix("module."): value for name, value in saved["model"].items()}, "only.pth")
sys.argv = [
    "run.py",
    "--encoder",
    "vits",
    "--load-from",
    "only.pth",
    "--img-path",
    "made/val0.png",
    "--input-size",
    "70",
    "--outdir",
    "seen",
    "--save-numpy",
    "--pred-only",
]
runpy.run_path("run.py", run_name="__main__")
depth = np.load(glob.glob("seen/*.npy")[0])
print(
    "RESULT "
    + json.dumps(
        {
            "weights": float(sum(value.double().abs().sum() for value in saved["model"].values())),
            "logged": len(LOGGED),
            "losses": sum(value for (tag, _), value in LOGGED.items() if tag == "train/loss"),
            "rmse": LOGGED["eval/rmse", 1],
            "d1": LOGGED["eval/d1", 1],
            "best": saved["previous_best"]["abs_rel"],
            "depth": float(depth.mean()),
            "spread": float(depth.std()),
        }
    )
)
