"""train.py trains from nothing, goes on from what it saved, and fine-tunes; test.py and demo.py use the model."""

import io
import itertools
import json
import os
import random
import runpy
import sys

import lmdb
import numpy as np
import torch
import torch._utils
import torch.utils.data
from PIL import Image

# what newer versions have dropped; loaders without worker processes
torch._utils._accumulate = itertools.accumulate
plain_loader = torch.utils.data.DataLoader


class Loader(plain_loader):
    def __init__(self, *args, num_workers=0, **kwargs):
        super().__init__(*args, **kwargs)


torch.utils.data.DataLoader = Loader

rng = np.random.RandomState(0)
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def picture():
    return Image.fromarray(rng.randint(0, 255, (24, 60), dtype=np.uint8))


def database(folder, count):
    os.makedirs(folder)
    with lmdb.open(folder, map_size=1 << 22) as env, env.begin(write=True) as txn:
        txn.put(b"num-samples", str(count).encode())
        for i in range(1, count + 1):
            buf = io.BytesIO()
            picture().save(buf, "PNG")
            word = "".join(LETTERS[k] for k in rng.randint(0, 36, rng.randint(2, 5)))
            txn.put(b"image-%09d" % i, buf.getvalue())
            txn.put(b"label-%09d" % i, word.encode())


for name in ("MJ", "ST"):
    database(f"train/{name}", 6)
database("valid", 5)
os.makedirs("demo_images")
for i in range(3):
    picture().save(f"demo_images/{i}.png")

SIZE = [
    "--batch_size",
    "4",
    "--output_channel",
    "32",
    "--hidden_size",
    "16",
    "--batch_max_length",
    "6",
    "--num_fiducial",
    "6",
]
ATTN = [
    "--Transformation",
    "TPS",
    "--FeatureExtraction",
    "VGG",
    "--SequenceModeling",
    "BiLSTM",
    "--Prediction",
    "Attn",
]
PLAIN = [
    "--Transformation",
    "None",
    "--FeatureExtraction",
    "RCNN",
    "--SequenceModeling",
    "None",
    "--Prediction",
    "Attn",
]


def run(script, *flags):
    sys.argv = [script, *SIZE, *flags]
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code


def train(name, *flags):
    run(
        "train.py",
        "--train_data",
        "train",
        "--valid_data",
        "valid",
        "--valInterval",
        "2",
        "--exp_name",
        name,
        *flags,
    )


def losses(name):
    found = []
    for line in open(f"saved_models/{name}/log_train.txt"):
        if "Train loss" in line:
            parts = line.replace(",", "").split()
            found += [float(parts[parts.index("loss:") + 1]), float(parts[len(parts) - 3])]
    return found


def weight(path):
    state = torch.load(path, map_location="cpu")
    return sum(v.double().abs().sum().item() for v in state.values())


train("attn", *ATTN, "--num_iter", "2")
train("more", *ATTN, "--num_iter", "2", "--saved_model", "saved_models/attn/best_accuracy.pth")
train("plain", *PLAIN, "--num_iter", "2", "--adam", "--lr", "0.001")
train(
    "fine",
    *PLAIN,
    "--num_iter",
    "2",
    "--adam",
    "--lr",
    "0.001",
    "--FT",
    "--saved_model",
    "saved_models/plain/best_norm_ED.pth",
)
run("test.py", *ATTN, "--eval_data", "valid", "--saved_model", "saved_models/more/best_accuracy.pth")
run(
    "demo.py", *PLAIN, "--image_folder", "demo_images", "--saved_model", "saved_models/fine/best_accuracy.pth"
)

numbers = {}
for name in ("attn", "more", "plain", "fine"):
    for i, value in enumerate(losses(name)):
        numbers[f"{name} {i}"] = value
    numbers[f"{name} weight"] = weight(f"saved_models/{name}/best_accuracy.pth")
with open("log_demo_result.txt") as log:
    read = [line.split("\t")[1].strip() for line in log if ".png" in line]
numbers["read"] = len(read)
numbers["letters"] = sum(len(text) for text in read)
numbers["results"] = len([n for _, _, files in os.walk("result") for n in files])
print("RESULT " + json.dumps(numbers))
