"""Runs train.py as one of its processes on made-up flying chairs; then custom.py with what it has saved."""

import json
import os
import random
import runpy
import socket
import sys

import cv2
import numpy as np
import torch
import torch.utils.data
import torchvision

torch.set_num_threads(1)
real_net = torchvision.models.resnet18
torchvision.models.resnet18 = lambda weights=None: real_net()
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, worker_init_fn=None, **k: RealLoader(*a, **k)
sys.path.insert(0, ".")
config = {
    "name": "tiny",
    "dataset": "chairs",
    "gpus": [0],
    "use_var": True,
    "var_min": 0,
    "var_max": 10,
    "pretrain": "resnet18",
    "initial_dim": 64,
    "block_dims": [64, 128, 256],
    "radius": 2,
    "dim": 8,
    "num_blocks": 1,
    "iters": 2,
    "image_size": [128, 144],
    "scale": 0,
    "batch_size": 2,
    "epsilon": 1e-8,
    "lr": 0.004,
    "wdecay": 1e-5,
    "dropout": 0,
    "clip": 1.0,
    "gamma": 0.85,
    "num_steps": 2,
    "restore_ckpt": None,
    "coarse_config": None,
}
with open("tiny.json", "w") as file:
    json.dump(config, file)
folder = "datasets/FlyingChairs/FlyingChairs_release/data"
for each in (folder, "custom", "checkpoints"):
    os.makedirs(each, exist_ok=True)
rng = np.random.default_rng(0)
for i in range(4):
    image = cv2.resize(rng.integers(0, 256, (10, 14, 3), dtype=np.uint8), (200, 160))
    cv2.imwrite(f"{folder}/{i}_img1.ppm", image)
    cv2.imwrite(f"{folder}/{i}_img2.ppm", np.roll(image, 3, 1))
    flow = np.zeros((160, 200, 2), np.float32)
    flow[..., 0] = 3
    with open(f"{folder}/{i}_flow.flo", "wb") as file:
        file.write(np.float32(202021.25).tobytes() + np.int32([200, 160]).tobytes() + flow.tobytes())
for i in (1, 2):
    cv2.imwrite(f"custom/image{i}.jpg", cv2.resize(np.roll(image, 3 * i, 1), (160, 128)))


def flow_of(path):
    """Read a flow; numpy 2 refuses the way in which the program reads the size."""
    return np.fromfile(path, np.float32)[3:].reshape(160, 200, 2)


sys.argv = ["train.py", "--cfg", "tiny.json"]
train = runpy.run_path("train.py", run_name="train")
sys.modules["utils.frame_utils"].readFlow = flow_of
steps = []
real_loss = train["sequence_loss"]


def loss(*args):
    steps.append(float(real_loss(*args)))
    return real_loss(*args)


train["train"].__globals__["sequence_loss"] = loss
for seed in (random.seed, np.random.seed, torch.manual_seed):
    seed(0)
parser = train["argparse"].ArgumentParser()
parser.add_argument("--cfg")
options = train["parse_args"](parser)
with socket.socket() as s:
    s.bind(("localhost", 0))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(s.getsockname()[1]))
train["main"](0, 1, options, True)  # as mp.spawn does with several GPUs; with one, the program fails
state = torch.load("checkpoints/tiny.pth", map_location="cpu")
sys.argv = ["custom.py", "--cfg", "tiny.json", "--path", "checkpoints/tiny.pth"]
runpy.run_path("custom.py", run_name="__main__")


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
                "steps": steps,
                "state": float(sum(v.double().abs().sum() for v in state.values())),
                "flow": cv2.imread("custom/flow.jpg").astype(float).mean(),
            }
        )
    )
)
