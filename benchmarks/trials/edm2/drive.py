"""Trains with train_edm2.py and resumes, samples with generate_images.py, trains and draws the toy example."""

import glob
import json
import os
import pickle
import sys
import types

import matplotlib
import numpy as np
import torch
from PIL import Image

matplotlib.use("Agg")
torch.set_num_threads(1)
memory = types.SimpleNamespace(rss=0)
process = types.SimpleNamespace(memory_info=lambda: memory, children=lambda recursive: [])
sys.modules["psutil"] = types.ModuleType("psutil")
sys.modules["psutil"].Process = lambda pid: process
sys.modules["requests"] = types.ModuleType("requests")


class DataLoader(torch.utils.data.DataLoader):
    def __init__(self, *a, num_workers=0, prefetch_factor=None, **k):
        super().__init__(*a, **k)


torch.utils.data.DataLoader = DataLoader
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
torch.utils.data.Sampler.__init__ = lambda self, data_source=None: None  # as in older versions

import dnnlib  # noqa: E402
import generate_images  # noqa: E402
import train_edm2  # noqa: E402

torch.manual_seed(0)
net = dnnlib.util.construct_class_by_name(
    class_name="training.networks_edm2.Precond",
    img_resolution=16, img_channels=3, label_dim=3, model_channels=16, channel_mult=[1, 2], num_blocks=1,
    attn_resolutions=[8], use_fp16=False,
)  # fmt: skip
with torch.no_grad():
    net.unet.out_gain.fill_(0.7)
with open("net.pkl", "wb") as file:
    pickle.dump(
        {
            "ema": net,
            "encoder": dnnlib.util.construct_class_by_name(class_name="training.encoders.StandardRGBEncoder"),
        },
        file,
    )
sys.argv = "generate_images.py --net net.pkl --outdir out --seeds 0-2 --steps 3 --S_churn 2 --batch 2".split()
generate_images.cmdline(standalone_mode=False)
pixels = [np.asarray(Image.open(f), dtype=float) for f in sorted(glob.glob("out/*.png"))]
result = {"images": len(pixels), "mean": float(np.mean(pixels)), "std": float(np.std(pixels))}

rng = np.random.default_rng(0)
os.makedirs("data/a")
labels = []
for i in range(8):
    Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(f"data/a/{i}.png")
    labels.append([f"a/{i}.png", i % 3])
with open("data/dataset.json", "w") as file:
    json.dump({"labels": labels}, file)


def train(images):
    config = train_edm2.setup_training_config(
        preset="edm2-img64-s",
        data="data",
        duration=images,
        batch=4,
        channels=16,
        fp16=False,
        status=4,
        lr=0.01,
    )
    config.network_kwargs.update(channel_mult=[1, 2], num_blocks=1, attn_resolutions=[8])
    config.update(checkpoint_nimg=1024)
    train_edm2.launch_training("made", config)
    state = torch.load(sorted(glob.glob("made/training-state-*.pt"))[-1], map_location="cpu")
    with open("made/stats.jsonl") as file:
        losses = [json.loads(line).get("Loss/loss") for line in file]
    return losses, float(sum(v.double().abs().sum() for v in state["net"].values()))


losses, size = train(8)
result.update(loss=losses[1], last=losses[-1], net=size)
losses, size = train(12)
result.update(loss_resumed=losses[-1], net_end=size, lines=len(losses))

import toy_example  # noqa: E402

toy_example.do_train(
    num_layers=2,
    hidden_dim=16,
    batch_size=64,
    total_iter=4,
    pkl_pattern="toy/%d.pkl",
    pkl_iter=2,
    viz_iter=None,
)
with open("toy/4.pkl", "rb") as file:
    toy = pickle.load(file)
result["toy"] = float(sum(p.double().abs().sum() for p in toy.parameters()))
print("RESULT " + json.dumps(result))
