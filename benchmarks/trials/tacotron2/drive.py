"""train.py for two steps, from its checkpoint, and in distributed mode with one process; then it speaks."""

import importlib.machinery
import json
import os
import random
import runpy
import socket
import sys
import types

import numpy as np
import scipy.io.wavfile
import torch
import torch.distributed
import torch.utils.data

torch.set_num_threads(1)
scalars = {}


class Params:
    """tf.contrib.training.HParams, as far as it is used."""

    def __init__(self, **values):
        self.__dict__.update(values)
        self.__dict__.update(small)

    def parse(self, text):
        for pair in text.split(","):
            name, value = pair.split("=")
            old = getattr(self, name)
            setattr(self, name, value == "True" if isinstance(old, bool) else type(old)(value))


class Writer:
    def __init__(self, logdir):
        pass

    def add_scalar(self, name, value, step):
        if name != "duration":
            scalars.setdefault(name, []).append(float(value))

    def add_histogram(self, *args):
        pass

    add_image = lambda self, *args, **kwargs: None  # noqa: E731


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = made


def mel(sr, n_fft, n_mels, fmin, fmax):
    return np.random.RandomState(0).rand(n_mels, n_fft // 2 + 1).astype(np.float32)


def padded(data, size):
    return np.pad(data, (size - len(data)) // 2)


training = types.SimpleNamespace(HParams=Params)
module(
    "tensorflow",
    contrib=types.SimpleNamespace(training=training),
    logging=types.SimpleNamespace(info=lambda *args: None),
)
util = types.SimpleNamespace(pad_center=padded, tiny=lambda x: 1e-30, normalize=lambda x, norm: x)
module("librosa", util=util)
module("librosa.util", **vars(util))
module("librosa.filters", mel=lambda *args: mel(*args))
module("torch.utils.tensorboard", SummaryWriter=Writer)
module("plotting_utils")
for name in ("alignment", "spectrogram", "gate_outputs"):
    setattr(sys.modules["plotting_utils"], f"plot_{name}_to_numpy", lambda *arrays: arrays)
module("unidecode", unidecode=lambda text: text)
inflect = types.SimpleNamespace(number_to_words=lambda *a, **k: "one")
module("inflect", engine=lambda: inflect)
RealLoader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: RealLoader(*a, **k)
if not hasattr(torch.distributed, "reduce_op"):
    torch.distributed.reduce_op = torch.distributed.ReduceOp
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
sys.path.insert(0, ".")
rng = np.random.default_rng(0)
with open("made.txt", "w") as file:
    for i in range(4):
        wave = rng.normal(0, 3000, 256 * (6 + 2 * i)).astype(np.int16)
        scipy.io.wavfile.write(f"{i}.wav", 22050, wave)
        file.write(f"{i}.wav|{'more ' * i}words here\n")
with socket.socket() as s:
    s.bind(("localhost", 0))
    url = f"tcp://localhost:{s.getsockname()[1]}"
small = {
    "training_files": "made.txt",
    "validation_files": "made.txt",
    "dist_url": url,
    "symbols_embedding_dim": 16,
    "encoder_embedding_dim": 16,
    "decoder_rnn_dim": 16,
    "prenet_dim": 8,
    "attention_rnn_dim": 16,
    "attention_dim": 8,
    "attention_location_n_filters": 4,
    "attention_location_kernel_size": 5,
    "postnet_embedding_dim": 8,
    "max_decoder_steps": 5,
    "batch_size": 2,
    "epochs": 1,
    "iters_per_checkpoint": 1,
    "learning_rate": 0.01,
}


def script(*flags):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    sys.argv = ["train.py", "-l", "logs", *flags]
    return runpy.run_path("train.py", run_name="__main__")


made = script("-o", "one")
script("-o", "two", "-c", "one/checkpoint_1", "--hparams", "epochs=2")
script("-o", "three", "-c", "one/checkpoint_1", "--warm_start", "--hparams", "distributed_run=True")
state = torch.load("three/checkpoint_1", map_location="cpu")["state_dict"]
model = made["load_model"](made["create_hparams"]())
model.load_state_dict(state)
model.eval()
text = torch.arange(5, 11)[None]
torch.manual_seed(0)
with torch.no_grad():
    spoken = model.inference(made["torch"].autograd.Variable(text).to(model.embedding.weight.device))
numbers = {**scalars, "saved": sorted(os.listdir("three"))}
numbers["state"] = float(sum(v.double().abs().sum() for v in state.values()))
numbers["spoken"] = float(spoken[1].abs().mean())


def numbered(values, name=""):
    """Give each number of a list a name of its own, so that it is compared with a tolerance."""
    if isinstance(values, dict):
        return {k: v for key, each in values.items() for k, v in numbered(each, f"{name} {key}").items()}
    if isinstance(values, (list, tuple)):
        return {k: v for i, each in enumerate(values) for k, v in numbered(each, f"{name} {i}").items()}
    return {name.strip(): values}


print("RESULT " + json.dumps(numbered(numbers)))
