"""supervised.py, unsupervised.py (adversarial, then refinement; exports .pth), evaluate.py on what was exported."""

import collections
import inspect
import json
import os
import random
import re
import runpy
import sys

import numpy as np
import torch

# ---- what newer versions have dropped or changed
Spec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")
inspect.getargspec = lambda f: Spec(*inspect.getfullargspec(f)[:4])
np.fromstring = lambda text, sep=" ", dtype=float: np.array(text.split(), dtype)
plain_load = torch.load
torch.load = lambda *a, **k: plain_load(*a, **{"weights_only": False, **k})

rng = np.random.RandomState(0)
WORDS, DIM = 60, 12
turn, _ = np.linalg.qr(rng.randn(DIM, DIM))
source = rng.randn(WORDS, DIM)
target = source @ turn + 0.05 * rng.randn(WORDS, DIM)
os.makedirs("made")
for lang, vectors in (("en", source), ("es", target)):
    with open(f"made/{lang}.vec", "w") as f:
        f.write(f"{WORDS} {DIM}\n")
        for i, vector in enumerate(vectors):
            f.write(f"{lang}word{i} " + " ".join(f"{x:.5f}" for x in vector) + "\n")
for name, first, last in (("train", 0, 30), ("eval", 30, WORDS)):
    with open(f"made/{name}.txt", "w") as f:
        for i in range(first, last):
            f.write(f"enword{i} esword{i}\n")
for lang in ("EN", "ES"):  # pairs of words with a score each
    os.makedirs(f"data/monolingual/{lang.lower()}", exist_ok=True)
    with open(f"data/monolingual/{lang.lower()}/{lang}_MADE.txt", "w") as f:
        for i in range(20):
            f.write(f"{lang.lower()}word{i} {lang.lower()}word{i + 7} {rng.rand():.3f}\n")

COMMON = [
    "--src_lang",
    "en",
    "--tgt_lang",
    "es",
    "--emb_dim",
    str(DIM),
    "--dico_eval",
    "made/eval.txt",
    "--exp_path",
    "dumped",
]
TEXT = ["--src_emb", "made/en.vec", "--tgt_emb", "made/es.vec"]


def run(script, name, *flags):
    sys.argv = [script, *COMMON, "--exp_name", name, "--exp_id", "one", *flags]
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    runpy.run_path(script, run_name="__main__")
    log = open(f"dumped/{name}/one/train.log").read()
    return log, [json.loads(line.split("__log__:")[1]) for line in log.splitlines() if "__log__:" in line]


os.makedirs("dumped")
_, taught = run(
    "supervised.py",
    "supervised",
    *TEXT,
    "--seed",
    "1",
    "--n_refinement",
    "1",
    "--dico_train",
    "made/train.txt",
    "--export",
    "pth",
    "--normalize_embeddings",
    "center,renorm",
)
log, alone = run(
    "unsupervised.py",
    "unsupervised",
    *TEXT,
    "--seed",
    "1",
    "--n_refinement",
    "1",
    "--n_epochs",
    "2",
    "--epoch_size",
    "64",
    "--dis_hid_dim",
    "32",
    "--dis_most_frequent",
    "40",
    "--export",
    "txt",
)
SAVED = [
    "--src_emb",
    "dumped/supervised/one/vectors-en.pth",
    "--tgt_emb",
    "dumped/supervised/one/vectors-es.pth",
]
seen, _ = run("evaluate.py", "evaluate", *SAVED)


def size(path):
    return float(np.abs(torch.load(path, map_location="cpu")).sum())


def numbers_of(name, records):
    return {
        f"{name} {i} {key}": value
        for i, record in enumerate(records)
        for key, value in record.items()
        if not key.startswith("n_")
        and ("mean_cosine" in key or "dis_" in key or "scores" in key or "precision_at_1-" in key)
    }


vectors = torch.load("dumped/supervised/one/vectors-en.pth", map_location="cpu")["vectors"]
text = open("dumped/unsupervised/one/vectors-en.txt").read().split()
found = [float(x) for x in re.findall(r"Precision at k = \d+: ([\d.]+)", seen)]
losses = [float(x) for x in re.findall(r"Discriminator loss: ([\d.]+)", log)]
print(
    "RESULT "
    + json.dumps(
        {
            **numbers_of("supervised", taught),
            **numbers_of("unsupervised", alone),
            "mapping": size("dumped/supervised/one/best_mapping.pth"),
            "mapping alone": size("dumped/unsupervised/one/best_mapping.pth"),
            "exported": float(vectors.abs().sum()),
            "words": len(text),
            "discriminator": losses[0],
            "evaluated": sum(found),
            "evaluations": len(found),
        }
    )
)
