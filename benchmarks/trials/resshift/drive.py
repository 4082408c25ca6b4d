"""Trains with main.py, resumes, trains with the perceptual loss, and restores pictures."""

import glob
import json
import os
import random
import re
import runpy
import sys
import types

import numpy as np
import torch
from PIL import Image
from torch import nn

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
os.environ["LOCAL_RANK"] = "0"


class DataLoader(torch.utils.data.DataLoader):
    def __init__(self, *a, num_workers=0, prefetch_factor=None, **k):
        super().__init__(*a, **k)


torch.utils.data.DataLoader = DataLoader
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


class LPIPS(nn.Module):
    """A fixed small network in the place of VGG."""

    def __init__(self, net):
        super().__init__()
        g = torch.Generator().manual_seed(4)
        self.layer = nn.Conv2d(3, 4, 8, 8)
        for p in self.parameters():
            p.data.copy_(torch.randn(p.shape, generator=g) * 0.1)

    def forward(self, a, b):
        return (self.layer(a) - self.layer(b)).square().mean((1, 2, 3), keepdim=True)


class Log:
    lines = []  # noqa: RUF012 (there is one log)

    def remove(self):
        pass

    def add(self, *a, **k):
        pass

    def info(self, line):
        self.lines.append(line)


module("lpips", LPIPS=LPIPS)
module("loguru", logger=Log())
module("requests")
for name in ("imgaug", "imgaug.augmenters", "albumentations"):
    module(name, DualIAATransform=object, to_tuple=tuple)

import torchvision.transforms.functional  # noqa: E402

sys.modules["torchvision.transforms.functional_tensor"] = torchvision.transforms.functional

from omegaconf import OmegaConf  # noqa: E402

noise = np.random.default_rng(0)
for folder, side, count in (("train", 96, 4), ("val/gt", 32, 2), ("val/lq", 8, 2)):
    os.makedirs(folder)
    for i in range(count):
        coarse = Image.fromarray(noise.integers(0, 256, (9, 9, 3), dtype=np.uint8))
        coarse.resize((side, side), Image.BICUBIC).save(f"{folder}/{i}.png")
os.makedirs("given")
for i, side in enumerate((12, 72)):
    Image.fromarray(noise.integers(0, 256, (8, side, 3), dtype=np.uint8)).save(f"given/{i}.png")

name = "configs/realsr_swinunet_realesrgan256_journal.yaml"
config = OmegaConf.load(name)
config.model.params.update(
    image_size=8,
    model_channels=32,
    attention_resolutions=[8, 4],
    channel_mult=[1, 2],
    num_res_blocks=[1, 1],
    num_head_channels=16,
    swin_embed_dim=32,
    window_size=4,
    lq_size=8,
)
config.autoencoder.params.n_embed = 16
config.autoencoder.params.ddconfig.update(resolution=32, ch=32, num_res_blocks=1)
config.degradation.gt_size = 32
config.data.train.params.update(blur_kernel_size=7, blur_kernel_size2=7)
config.degradation.queue_size = 4
config.data.train.params.update(
    dir_paths=["train"], txt_file_path=[], im_exts=["png"], crop_pad_size=88, gt_size=32
)
config.data.val.params.update(dir_path="val/lq", extra_dir_path="val/gt")
config.train.update(
    lr=1e-3,
    lr_min=1e-4,
    warmup_iterations=1,
    batch=[2, 2],
    microbatch=1,
    num_workers=0,
    iterations=4,
    save_freq=2,
    log_freq=[2, 2, 1],
    val_freq=2,
    seed=5,
    ema_rate=0.9,
    val_resolution=8,
)
OmegaConf.save(config, name)

from basicsr.utils import img_process_util  # noqa: E402

real_filter = img_process_util.filter2D
# padding keeps the memory's order on a CPU, and the program asks for a view of the padded picture
img_process_util.filter2D = lambda img, kernel: real_filter(img.contiguous(), kernel)

from utils.util_common import get_obj_from_str  # noqa: E402

os.makedirs("weights")
torch.manual_seed(1)
coder = get_obj_from_str(config.autoencoder.target)(**config.autoencoder.params)
torch.save(coder.state_dict(), config.autoencoder.ckpt_path)


def train(cfg, *argv):
    OmegaConf.save(cfg, "now.yaml")
    Log.lines.clear()
    sys.argv = ["main.py", "--cfg_path", "now.yaml", *argv]
    runpy.run_path("main.py", run_name="__main__")
    text = "\n".join(Log.lines)
    losses = [
        float(x) for line in Log.lines if "Loss/" in line for x in re.findall(r"(\d\.\de[-+]\d+)", line)
    ]
    return losses, [float(x) for x in re.findall(r"(?:PSNR|LPIPS)= *(\d+\.\d+)", text)]


def size(path, key=None):
    state = torch.load(path, map_location="cpu")
    state = state[key] if key else state
    return float(sum(v.double().abs().sum() for v in state.values()))


plain = OmegaConf.create(OmegaConf.to_container(config))
plain.trainer.target = "trainer.TrainerDifIR"
losses, scores = train(plain, "--save_dir", "plain")
(folder,) = glob.glob("plain/*")
result = {
    "losses": sum(losses),
    "logged": len(losses),
    "psnr": scores[-2],
    "lpips": scores[-1],
    "net": size(f"{folder}/ckpts/model_4.pth", "state_dict"),
    "ema": size(f"{folder}/ema_ckpts/ema_model_4.pth"),
    "images": len(glob.glob(f"{folder}/images/*/*.png")),
}

plain.train.iterations = 6
losses, scores = train(plain, "--save_dir", "plain", "--resume", f"{folder}/ckpts/model_4.pth")
result.update(
    resumed=sum(losses),
    psnr_end=scores[-2],
    net_end=size(f"{folder}/ckpts/model_6.pth", "state_dict"),
    ema_end=size(f"{folder}/ema_ckpts/ema_model_6.pth"),
)

config.train.iterations = 2
losses, scores = train(config, "--save_dir", "perceptual")
result.update(perceptual=sum(losses), psnr_perceptual=scores[-2])

os.rename(f"{folder}/ckpts/model_6.pth", "weights/resshift_realsrx4_s4_v3.pth")
for bs in ("1", "2"):
    path = "given" if bs == "1" else "val/lq"
    sys.argv = [
        "inference_resshift.py",
        "-i",
        path,
        "-o",
        "out" + bs,
        "-v",
        "v3",
        "--chop_size",
        "64",
        "--bs",
        bs,
    ]
    runpy.run_path("inference_resshift.py", run_name="__main__")
    made = [np.asarray(Image.open(f), dtype=float) for f in sorted(glob.glob(f"out{bs}/*.png"))]
    result.update(
        {
            "restored" + bs: len(made),
            "mean" + bs: float(np.mean([m.mean() for m in made])),
            "std" + bs: float(np.mean([m.std() for m in made])),
        }
    )
print("RESULT " + json.dumps(result))
