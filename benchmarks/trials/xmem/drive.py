"""train.py for two stages with a resume between them, then eval.py over a made-up video."""

import contextlib
import glob
import json
import os
import runpy
import socket
import sys
import types

import numpy as np
import torch
import torchvision
from PIL import Image

# ---- libraries for logs and progress
LOGGED = {}


class SummaryWriter:
    def __init__(self, *args):
        pass

    def add_text(self, *args):
        pass

    add_image = add_text

    def add_scalar(self, tag, value, step):
        LOGGED[tag, step] = float(value)


board = types.ModuleType("torch.utils.tensorboard")
board.SummaryWriter = SummaryWriter
git = types.ModuleType("git")
git.Repo = lambda path: types.SimpleNamespace(
    active_branch="main", head=types.SimpleNamespace(commit=types.SimpleNamespace(hexsha="0"))
)
bar = types.ModuleType("progressbar")
bar.progressbar = lambda items, **k: items
sys.modules.update(
    {
        "torch.utils.tensorboard": board,
        "git": git,
        "progressbar": bar,
        "thinplate": types.ModuleType("thinplate"),
    }
)

# ---- the weights of ImageNet are drawn at random; no worker processes
from torch.utils import model_zoo  # noqa: E402


def load_url(url):
    torch.manual_seed(0)
    name = "resnet18" if "resnet18" in url else "resnet50"
    return getattr(torchvision.models, name)(weights=None).state_dict()


model_zoo.load_url = load_url
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, worker_init_fn=None, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader

from dataset import vos_dataset  # noqa: E402

plain_item = vos_dataset.VOSDataset.__getitem__


def item(self, index):  # every sixth pixel
    data = plain_item(self, index)
    return {
        name: value[..., ::6, ::6] if name in ("rgb", "first_frame_gt", "cls_gt") else value
        for name, value in data.items()
    }


vos_dataset.VOSDataset.__getitem__ = item

# ---- videos of two squares that move, for training and for evaluation
rng = np.random.default_rng(1)


def video(images, masks, size, number, every_mask=True):
    os.makedirs(images)
    os.makedirs(masks)
    ground = rng.integers(0, 120, (size[0], size[1], 3), dtype=np.uint8)
    for t in range(number):
        image, mask = ground.copy(), np.zeros(size, dtype=np.uint8)
        for k, (row, column) in enumerate(((8, 4 + 3 * t), (size[0] // 2, size[1] // 2 - 2 * t))):
            box = np.s_[row : row + size[0] // 3, column : column + size[1] // 4]
            image[box], mask[box] = 150 + 80 * k, k + 1
        Image.fromarray(image).save(f"{images}/{t:05}.jpg")
        if t == 0 or every_mask:
            shown = Image.fromarray(mask)
            shown.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0] + [0] * 759)
            shown.save(f"{masks}/{t:05}.png")


with open("util/davis_subset.txt") as davis, open("util/yv_subset.txt") as tube:
    names = davis.readline().strip(), tube.readline().strip()
video(
    f"made/DAVIS/2017/trainval/JPEGImages/480p/{names[0]}",
    f"made/DAVIS/2017/trainval/Annotations/480p/{names[0]}",
    (96, 128),
    6,
)
video(
    f"made/YouTube/train_480p/JPEGImages/{names[1]}",
    f"made/YouTube/train_480p/Annotations/{names[1]}",
    (96, 128),
    6,
)
video("made/test/JPEGImages/one", "made/test/Annotations/one", (96, 128), 8, every_mask=False)

with socket.socket() as s:
    s.bind(("localhost", 0))
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(s.getsockname()[1])
    )


def train(name, *flags):
    sys.argv = [
        "train.py",
        "--davis_root",
        "made/DAVIS",
        "--yv_root",
        "made/YouTube",
        "--stages",
        "2",
        "--s2_batch_size",
        "1",
        "--s2_num_frames",
        "3",
        "--s2_num_ref_frames",
        "1",
        "--s2_finetune",
        "0",
        "--s2_start_warm",
        "0",
        "--s2_end_warm",
        "3",
        "--s2_lr",
        "1e-4",
        "--log_text_interval",
        "1",
        "--save_network_interval",
        "2",
        "--save_checkpoint_interval",
        "2",
        "--num_workers",
        "0",
        "--exp_id",
        name,
        *flags,
    ]
    runpy.run_path("train.py", run_name="__main__")
    return sorted(glob.glob(f"saves/*{name}*/*.pth"))


def size(path):
    state = torch.load(path, map_location="cpu")
    state = state.get("network", state)
    return float(sum(value.double().abs().sum() for value in state.values()))


first = train("first", "--s2_iterations", "3")
checkpoint = next(path for path in first if "checkpoint_2" in path)
network = next(path for path in first if path.endswith("_2.pth") and "checkpoint" not in path)
again = train("again", "--s2_iterations", "5", "--load_checkpoint", checkpoint, "--no_amp")
other = train("other", "--s2_iterations", "3", "--load_network", network)

sys.argv = [
    "eval.py",
    "--model",
    network,
    "--dataset",
    "G",
    "--generic_path",
    "made/test",
    "--output",
    "shown",
    "--size",
    "64",
    "--mem_every",
    "2",
    "--max_mid_term_frames",
    "3",
    "--min_mid_term_frames",
    "2",
    "--num_prototypes",
    "8",
    "--top_k",
    "8",
    "--flip",
]
with contextlib.suppress(ZeroDivisionError):  # frames by seconds, where the time is not measured
    runpy.run_path("eval.py", run_name="__main__")
masks = np.stack([np.array(Image.open(path)) for path in sorted(glob.glob("shown/one/*.png"))])
print(
    "RESULT "
    + json.dumps(
        {
            "first": size(first[-1]),
            "again": size(again[-1]),
            "other": size(other[-1]),
            "losses": sum(value for (tag, _), value in LOGGED.items() if "total_loss" in tag),
            "logged": sum("total_loss" in tag for tag, _ in LOGGED),
            "frames": len(masks),
            "one": int((masks == 1).sum()),
            "two": int((masks == 2).sum()),
        }
    )
)
