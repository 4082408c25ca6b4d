"""Trains a tiny model with train.py for two epochs, resumes it for a third, then runs inference.py."""

import json
import logging
import os
import random
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import torch
from scipy.io import wavfile

torch.set_num_threads(1)
processes = []


def spawn(fn, args=(), nprocs=1, **options):
    """Run the processes here, one after the other."""
    processes.append(nprocs)
    for rank in range(nprocs):
        fn(rank, *args)
        torch.distributed.destroy_process_group()


torch.multiprocessing.spawn = spawn
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, **k: real_loader(*a, num_workers=0, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


# ---- librosa's filters, phonemizer, tensorboard, the compiled search for an alignment
def mel(sr, n_fft, n_mels, fmin=0.0, fmax=None):
    fmax = fmax or sr / 2
    points = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + fmax / 700), n_mels + 2) / 2595) - 1)
    bins = np.linspace(0, sr / 2, n_fft // 2 + 1)
    up = (bins - points[:-2, None]) / (points[1:-1] - points[:-2])[:, None]
    down = (points[2:, None] - bins) / (points[2:] - points[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


module("librosa.filters", mel=mel)
module("librosa.util", normalize=None, pad_center=None, tiny=None)
module("librosa", util=sys.modules["librosa.util"], filters=sys.modules["librosa.filters"])
module("unidecode", unidecode=str)
module(
    "phonemizer.backend",
    EspeakBackend=lambda *a, **k: types.SimpleNamespace(phonemize=lambda texts, strip=True: texts),
)
module("phonemizer", phonemize=lambda text, **k: text, backend=sys.modules["phonemizer.backend"])
scalars, images = {}, []


class SummaryWriter:
    def __init__(self, log_dir=None):
        self.log_dir = log_dir

    def add_scalar(self, name, value, step):
        scalars.setdefault(name, []).append(float(value))

    def add_image(self, name, value, step, dataformats=None):
        images.append(name)

    def add_audio(self, name, value, step, rate):
        scalars.setdefault(name, []).append(float(value.abs().sum()))

    def add_histogram(self, *args):
        pass


module("torch.utils.tensorboard", SummaryWriter=SummaryWriter)


def maximum_path_c(paths, values, t_ys, t_xs):
    for path, value, t_y, t_x in zip(paths, values, t_ys, t_xs, strict=True):
        best = np.full((t_y, t_x), -1e9, dtype=np.float32)
        best[0, 0] = value[0, 0]
        for y in range(1, t_y):
            for x in range(min(y + 1, t_x)):
                best[y, x] = value[y, x] + max(best[y - 1, x], best[y - 1, x - 1] if x else -1e9)
        x = t_x - 1
        for y in range(t_y - 1, -1, -1):
            path[y, x] = 1
            if x and (x == y or best[y - 1, x] < best[y - 1, x - 1]):
                x -= 1


module("monotonic_align.monotonic_align", core=None)
module("monotonic_align.monotonic_align.core", maximum_path_c=maximum_path_c)

rng = np.random.default_rng(0)
os.makedirs("wavs")
lines = []
for i in range(6):
    time = np.arange(256 * (40 + i)) / 22050
    wave = 9000 * np.sin(2 * np.pi * (200 + 60 * i) * time) + rng.normal(0, 900, len(time))
    wavfile.write(f"wavs/{i}.wav", 22050, wave.astype(np.int16))
    lines.append(f"wavs/{i}.wav|" + "abcdefghi"[: 5 + i % 4])
Path("train.txt").write_text("\n".join(lines[:4]))
Path("val.txt").write_text("\n".join(lines[4:]))
config = json.loads(Path("configs/vits2_ljs_nosdp.json").read_text())
config["train"].update(
    log_interval=1,
    eval_interval=2,
    epochs=2,
    learning_rate=1e-3,
    batch_size=2,
    segment_size=2048,
    fp16_run=True,
)
config["data"].update(training_files="train.txt", validation_files="val.txt", add_blank=True)
config["model"].update(
    inter_channels=8,
    hidden_channels=8,
    filter_channels=8,
    n_layers=1,
    resblock="2",
    resblock_kernel_sizes=[3],
    resblock_dilation_sizes=[[1, 3]],
    upsample_initial_channel=16,
    n_layers_q=1,
    duration_discriminator_type="dur_disc_1",
)

import utils  # noqa: E402

utils.plot_spectrogram_to_numpy = lambda x: np.zeros((1, 1, 3)) + x.sum()
utils.plot_alignment_to_numpy = lambda x, info=None: np.zeros((1, 1, 3)) + x.sum()
logging.getLogger().setLevel(logging.WARNING)


def script(*argv):
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    sys.argv = list(argv)
    return runpy.run_path(argv[0], run_name="__main__")


for epochs in (2, 3):
    config["train"]["epochs"] = epochs
    Path("tiny.json").write_text(json.dumps(config))
    script("train.py", "-c", "tiny.json", "-m", "tiny")
saved = [name for name in sorted(os.listdir("logs/tiny")) if name.endswith(".pth")]
weights = torch.load(f"logs/tiny/{[s for s in saved if s[0] == 'G'][-1]}", map_location="cpu")
size = float(sum(v.double().abs().sum() for v in weights["model"].values()))
print(
    "RESULT "
    + json.dumps(
        {
            "processes": processes,
            "steps": len(scalars["loss/g/total"]),
            "first": scalars["loss/g/total"][0],
            "last": scalars["loss/g/total"][-1],
            "d": scalars["loss/d/total"][-1],
            "kl": scalars["loss/g/kl"][-1],
            "dur": scalars["loss/dur_disc/total"][-1],
            "audio": scalars["gen/audio"][-1],
            "images": len(images),
            "saved": saved,
            "size": size,
            "iteration": weights["iteration"],
        }
    )
)
