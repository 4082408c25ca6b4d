"""Trains a teacher, distills it in two ways (one resumed), and evaluates the student."""

import builtins
import json
import os
import random
import runpy
import sys
import types

import numpy as np
import torch
import torchvision

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
os.environ.setdefault("USER", "someone")
os.environ.setdefault("LOGNAME", "someone")
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
logged = []


class SummaryWriter:
    def __init__(self, path):
        pass

    def add_scalar(self, name, value, step):
        logged.append((name, float(value)))

    def flush(self):
        pass


sys.modules["tensorboardX"] = types.ModuleType("tensorboardX")
sys.modules["tensorboardX"].SummaryWriter = SummaryWriter


class Pictures(torch.utils.data.Dataset):
    """The attributes of CIFAR100, with noise."""

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        noise = np.random.default_rng(int(train))
        self.data = noise.integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
        self.targets = [(i * 7) % 100 for i in range(100)]
        self.transform, self.target_transform, self.train = transform, target_transform, train

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        from PIL import Image

        return self.transform(Image.fromarray(self.data[i])), self.targets[i]


torchvision.datasets.CIFAR100 = Pictures
sys.path.insert(0, os.getcwd())
from mdistiller.models import cifar_model_dict  # noqa: E402

cifar_model_dict["resnet14"] = (cifar_model_dict["resnet14"][0], "output/teach/teacher/student_latest")


def run(script, text, *argv):
    with open("tiny.yaml", "w") as file:
        file.write(text)
    for name in [name for name in sys.modules if name.startswith("mdistiller.engine.cfg")]:
        del sys.modules[name]
    logged.clear()
    sys.argv = [script, *argv]
    runpy.run_path(script, run_name="__main__")
    return [value for name, value in logged if name == "train_loss"]


def config(kind, epochs, trainer="base"):
    return f"""
EXPERIMENT: {{NAME: "{kind if kind != "NONE" else "teacher"}", TAG: "a", PROJECT: "teach"}}
DATASET: {{NUM_WORKERS: 0, TEST: {{BATCH_SIZE: 50}}}}
DISTILLER: {{TYPE: "{kind}", TEACHER: "resnet14", STUDENT: "{"resnet14" if kind == "NONE" else "resnet8"}"}}
SOLVER: {{BATCH_SIZE: 50, EPOCHS: {epochs}, LR: 0.01, LR_DECAY_STAGES: [1], TRAINER: "{trainer}"}}
LOG: {{PREFIX: "output", WANDB: False, SAVE_CHECKPOINT_FREQ: 1}}
CRD: {{FEAT: {{STUDENT_DIM: 64, TEACHER_DIM: 64}}, NCE: {{K: 8}}}}
"""


result = {}
losses = run("tools/train.py", config("NONE", 1), "--cfg", "tiny.yaml")
result["teacher"] = losses[0]
losses = run("tools/train.py", config("KD", 1), "--cfg", "tiny.yaml")
result["kd"] = losses[0]
losses = run("tools/train.py", config("KD", 2), "--cfg", "tiny.yaml", "--resume")
result["kd_resumed"] = losses[-1]
losses = run("tools/train.py", config("CRD", 2, "crd"), "--cfg", "tiny.yaml")
result["crd"], result["crd_last"] = losses[0], losses[-1]
state = torch.load("output/teach/CRD/student_latest", map_location="cpu")["model"]
result["student"] = float(sum(v.double().abs().sum() for v in state.values()))
said, real_print = [], builtins.print
builtins.print = lambda *a, **k: said.append(" ".join(map(str, a)))
run(
    "tools/eval.py",
    "",
    "-m",
    "resnet8",
    "-d",
    "cifar100",
    "-c",
    "output/teach/CRD/student_latest",
    "-bs",
    "50",
)
builtins.print = real_print
print("RESULT " + json.dumps(result))
