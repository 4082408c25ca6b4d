"""Trains with main.py, goes on from its checkpoint with classes, and samples with DDPM and DDIM steps."""

import glob
import json
import os
import random
import socket
import sys

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
with socket.socket() as s:
    s.bind(("localhost", 0))
    port = s.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
# with one GPU the program asks for the group's size, but makes no group
dist.init_process_group(dist.get_default_backend_for_device(torch.accelerator.current_accelerator() or "cpu"))

real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, **k)
real_randn = np.random.default_rng(0)
for c in "abc":
    os.makedirs(f"pictures/{c}")
    for i in range(2):
        Image.fromarray(real_randn.integers(0, 256, (28, 28, 3), dtype=np.uint8)).save(
            f"pictures/{c}/{i}.png"
        )
os.makedirs("made")

import unets  # noqa: E402

unets.Tiny = lambda **k: unets.UNetModel(
    model_channels=32,
    num_res_blocks=1,
    attention_resolutions=(4,),
    channel_mult=(1, 2),
    num_heads=2,
    num_head_channels=16,
    use_scale_shift_norm=True,
    resblock_updown=True,
    **k,
)

import main as program  # noqa: E402

shown = []
program.cv2.imwrite = lambda path, image: shown.append(image.astype(float))
real_log = program.loss_logger.log
losses = []


def log(self, value, display=False):
    losses.append(value)
    return real_log(self, value, display)


program.loss_logger.log = log


def run(*more):
    sys.argv = [
        "main.py",
        "--arch",
        "Tiny",
        "--dataset",
        "mnist_m",
        "--data-dir",
        "pictures",
        "--batch-size",
        "2",
        "--diffusion-steps",
        "8",
        "--sampling-steps",
        "3",
        "--save-dir",
        "made",
        "--epochs",
        "1",
        "--lr",
        "0.001",
        *more,
    ]
    program.main()


def size(path):
    state = torch.load(path, map_location="cpu")
    return float(sum(v.double().abs().sum() for v in state.values()))


def sampled(condition):
    (name,) = glob.glob(f"made/*_images-class_condn_{condition}.npz")
    with np.load(name, allow_pickle=True) as made:
        return made["arr_0"].astype(float), made["arr_1"]


real_sample = program.sample_N_images
program.sample_N_images = lambda n, *a: real_sample(min(n, 4), *a)
run("--ema_w", "0.9")
plain, averaged = (
    f"made/Tiny_mnist_m-epoch_1-timesteps_8-class_condn_False{end}.pt" for end in ("", "_ema_0.9")
)
result = {
    "steps": len(losses),
    "first": losses[0],
    "last": losses[-1],
    "net": size(plain),
    "ema": size(averaged),
    "shown": shown[-1].mean(),
}
run("--pretrained-ckpt", averaged, "--class-cond", "--delete-keys", "out.2.weight", "--seed", "7", "--ddim")
result.update(resumed=losses[3], end=losses[-1], shown_again=shown[-1].mean())
run("--pretrained-ckpt", plain, "--sampling-only", "--num-sampled-images", "3")
samples, _ = sampled(False)
result.update(n=len(samples), mean=samples.mean(), std=samples.std())
run(
    "--pretrained-ckpt",
    plain.replace("False", "True"),
    "--sampling-only",
    "--num-sampled-images",
    "4",
    "--class-cond",
    "--ddim",
    "--batch-size",
    "3",
)
samples, labels = sampled(True)
result.update(n_cond=len(samples), mean_cond=samples.mean(), std_cond=samples.std(), labels=int(labels.sum()))
print("RESULT " + json.dumps(result))
