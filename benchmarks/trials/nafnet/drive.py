"""basicsr/train.py: train, resume with the prefetcher; then demo.py restores an image."""

import json
import os
import runpy
import socket
import sys
import types

import cv2
import numpy as np
import scipy.ndimage
import torch
import yaml

# ---- old names of scipy, numpy and torchvision; libraries that only other options need
filters = types.ModuleType("scipy.ndimage.filters")
filters.convolve = scipy.ndimage.convolve
sys.modules["scipy.ndimage.filters"] = filters
for name in ("lmdb", "requests", "dlib", "wandb"):
    sys.modules.setdefault(name, types.ModuleType(name))
np.bool, np.float, np.int = bool, float, int
plain_load = torch.load
torch.load = lambda *a, **k: plain_load(*a, **{**k, "weights_only": False})
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, persistent_workers=False, worker_init_fn=None, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader
sys.path.insert(0, ".")
rng = np.random.default_rng(3)
for part, number in (("train", 4), ("val", 2)):
    for kind in ("gt", "lq"):
        os.makedirs(f"made/{part}/{kind}")
    for i in range(number):
        image = cv2.resize(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8), (48, 40))
        noise = rng.normal(0, 20, image.shape)
        cv2.imwrite(f"made/{part}/gt/{i}.png", image)
        cv2.imwrite(f"made/{part}/lq/{i}.png", np.clip(image + noise, 0, 255).astype(np.uint8))


def data(part, **more):
    return {
        "name": part,
        "type": "PairedImageDataset",
        "dataroot_gt": f"made/{part}/gt",
        "dataroot_lq": f"made/{part}/lq",
        "filename_tmpl": "{}",
        "io_backend": {"type": "disk"},
        **more,
    }


def options(name, iterations, **train):
    with open(f"{name}-{iterations}.yml", "w") as file:
        yaml.safe_dump(
            {
                "name": name,
                "model_type": "ImageRestorationModel",
                "scale": 1,
                "num_gpu": 1,
                "manual_seed": 10,
                "datasets": {
                    "train": data(
                        "train",
                        gt_size=32,
                        use_flip=True,
                        use_rot=True,
                        use_shuffle=True,
                        num_worker_per_gpu=0,
                        batch_size_per_gpu=2,
                        dataset_enlarge_ratio=1,
                        **train,
                    ),
                    "val": data("val"),
                },
                "network_g": {
                    "type": "NAFNet",
                    "width": 4,
                    "enc_blk_nums": [1, 1],
                    "middle_blk_num": 1,
                    "dec_blk_nums": [1, 1],
                },
                "path": {"pretrain_network_g": None, "strict_load_g": True, "resume_state": None},
                "train": {
                    "optim_g": {"type": "AdamW", "lr": 0.01, "weight_decay": 0.0, "betas": [0.9, 0.9]},
                    "scheduler": {"type": "TrueCosineAnnealingLR", "T_max": 20, "eta_min": 1e-7},
                    "total_iter": iterations,
                    "warmup_iter": -1,
                    "pixel_opt": {"type": "PSNRLoss", "loss_weight": 1, "reduction": "mean"},
                },
                "val": {
                    "val_freq": 3,
                    "save_img": False,
                    "use_image": False,
                    "metrics": {
                        "psnr": {"type": "calculate_psnr", "crop_border": 0, "test_y_channel": False},
                        "ssim": {"type": "calculate_ssim", "crop_border": 0, "test_y_channel": False},
                    },
                },
                "logger": {
                    "print_freq": 1,
                    "save_checkpoint_freq": 3,
                    "use_tb_logger": False,
                    "wandb": {"project": None},
                },
                "dist_params": {"backend": "nccl", "port": 29500},
            },
            file,
        )
    return f"{name}-{iterations}.yml"


def run(script, *flags):
    sys.argv = [script, *flags]
    return runpy.run_path(script, run_name="__main__")


def weights(name, step):
    state = plain_load(f"experiments/{name}/models/net_g_{step}.pth", map_location="cpu")["params"]
    return float(sum(value.double().abs().sum() for value in state.values()))


with socket.socket() as s:
    s.bind(("localhost", 0))
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(s.getsockname()[1])
    )
torch.multiprocessing.set_start_method = lambda *a, **k: None


def train(path):  # its validation works in a process group only
    run("basicsr/train.py", "-opt", path, "--launcher", "pytorch")
    torch.distributed.destroy_process_group()


train(options("once", 3))
first = weights("once", "latest")
train(options("once", 6, prefetch_mode="cuda", pin_memory=True))
again = weights("once", "latest")

from basicsr.metrics import psnr_ssim  # noqa: E402

truth, noisy = cv2.imread("made/val/gt/0.png"), cv2.imread("made/val/lq/0.png")
ssim = psnr_ssim.calculate_ssim(truth, noisy, crop_border=0)

with open("demo.yml", "w") as file:
    yaml.safe_dump(
        {
            "name": "demo",
            "model_type": "ImageRestorationModel",
            "scale": 1,
            "num_gpu": 1,
            "manual_seed": 10,
            "datasets": {},
            "dist_params": {"backend": "nccl", "port": 29500},
            "network_g": {
                "type": "NAFNet",
                "width": 4,
                "enc_blk_nums": [1, 1],
                "middle_blk_num": 1,
                "dec_blk_nums": [1, 1],
            },
            "path": {
                "pretrain_network_g": "experiments/once/models/net_g_latest.pth",
                "strict_load_g": True,
                "resume_state": None,
            },
            "val": {"grids": False},
        },
        file,
    )
run("basicsr/demo.py", "-opt", "demo.yml", "--input_path", "made/val/lq/0.png", "--output_path", "out.png")
restored = cv2.imread("out.png").astype(float)

print(
    "RESULT "
    + json.dumps(
        {
            "first": first,
            "again": again,
            "ssim": ssim,
            "restored": float(restored.mean()),
            "restored spread": float(restored.std()),
            "states": len(os.listdir("experiments/once/training_states")),
        }
    )
)
