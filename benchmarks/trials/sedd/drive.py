"""Trains with run_train.py, goes on from its checkpoint, and samples with and without a prompt."""

import json
import logging
import os
import random
import re
import runpy
import socket
import sys
import types

import numpy as np
import torch
from torch import nn

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
real_loader = torch.utils.data.DataLoader
torch.utils.data.DataLoader = lambda *a, num_workers=0, persistent_workers=False, **k: real_loader(*a, **k)
real_load = torch.load
torch.load = lambda *a, **k: real_load(*a, **{**k, "weights_only": False})
LENGTH, WORDS = 16, 30


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


def attention(qkv, cu_seqlens, max_seqlen, dropout_p, causal):
    """Compute attention as flash-attn does, for sequences of one length."""
    q, k, v = (qkv[:, i].reshape(-1, max_seqlen, *qkv.shape[2:]).transpose(1, 2) for i in range(3))
    out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out.transpose(1, 2).reshape(-1, *qkv.shape[2:])


decoded = []


class Tokenizer:
    eos_token = "$"

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def __call__(self, text):
        return types.SimpleNamespace(input_ids=[ord(c) % WORDS for c in text])

    def batch_decode(self, sample):
        decoded.append(np.asarray(sample.tolist()))
        return ["".join(chr(65 + i) for i in row) for row in decoded[-1]]


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(2)
        self.words = nn.Embedding(WORDS + 1, WORDS + 1)
        self.words.weight.data.copy_(torch.randn(self.words.weight.shape, generator=g))

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def forward(self, ids, labels):
        logits = self.words(ids)
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits


module("flash_attn")
module("flash_attn.flash_attn_interface", flash_attn_varlen_qkvpacked_func=attention)
module("transformers", GPT2TokenizerFast=Tokenizer, GPT2LMHeadModel=LanguageModel)
module("requests")
module("datasets", load_dataset=None, Dataset=None)

# a line of the log names each GPU
torch.cuda.get_device_properties = lambda i: types.SimpleNamespace(name="a GPU", total_memory=1 << 30)

import data  # noqa: E402
import run_train  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

data.DataLoader = torch.utils.data.DataLoader
draw = torch.Generator().manual_seed(1)
rows = [{"input_ids": torch.randint(0, WORDS, (LENGTH,), generator=draw)} for _ in range(12)]
data.get_dataset = lambda name, mode, **k: rows if mode == "train" else rows[:4]

config = OmegaConf.load("configs/config.yaml")
config.model = OmegaConf.load("configs/model/small.yaml")
del config.defaults, config.hydra
config.ngpus, config.tokens, config.work_dir = 1, WORDS, "work"
config.model.update(hidden_size=32, cond_dim=16, length=LENGTH, n_blocks=2, n_heads=2)
config.training.update(
    batch_size=4,
    n_iters=4,
    snapshot_freq=4,
    log_freq=1,
    eval_freq=2,
    accum=2,
    ema=0.9,
    snapshot_freq_for_preemption=2,
)
config.sampling.steps = 4
config.eval.update(batch_size=4, perplexity_batch_size=2)
config.optim.update(lr=0.01, warmup=2)


def train():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    logging.getLogger().handlers.clear()
    run_train.run_multiprocess(0, 1, config, port)
    with open("work/logs") as log:
        text = log.read()
    return {
        kind: [float(x) for x in re.findall(kind + r": ([-+\d.]*\d(?:e[-+]\d+)?)", text)]
        for kind in ("training_loss", "evaluation_loss", "Perplexity")
    }


def size(path):
    state = torch.load(path, map_location="cpu")
    return (
        float(sum(v.double().abs().sum() for v in state["model"].values())),
        float(sum(v.double().abs().sum() for v in state["ema"]["shadow_params"])),
    )


os.makedirs("work/.hydra")
OmegaConf.save(config, "work/.hydra/config.yaml")
seen = train()
model, ema = size("work/checkpoints/checkpoint_1.pth")
result = {
    "losses": len(seen["training_loss"]),
    "first": seen["training_loss"][0],
    "last": seen["training_loss"][-1],
    "evaluated": seen["evaluation_loss"][-1],
    "perplexity": seen["Perplexity"][-1],
    "model": model,
    "ema": ema,
    "words": int(decoded[-1].sum()),
}

torch.manual_seed(4)
config.training.n_iters = 6
config.graph.type = "absorb"
config.sampling.predictor = "analytic"
seen = train()
model, ema = size("work/checkpoints-meta/checkpoint.pth")
result.update(
    losses_end=len(seen["training_loss"]),
    end=seen["training_loss"][-1],
    model_end=model,
    ema_end=ema,
    perplexity_end=seen["Perplexity"][-1],
)

import sampling  # noqa: E402

real_sampler = sampling.get_pc_sampler
sampling.get_pc_sampler = lambda graph, noise, dims, *a, **k: real_sampler(graph, noise, dims, *a, **k)
for name, more in (("run_sample.py", []), ("run_sample_cond.py", ["--prefix", "ab", "--suffix", "yz"])):
    torch.manual_seed(6)
    sys.argv = [name, "--model_path", "work", "--batch_size", "1", "--steps", "3", *more]
    runpy.run_path(name, run_name="__main__")
    words = decoded[-1]
    result.update(
        {
            name: int(words.sum()),
            name + " shape": list(words.shape),
            name + " ends": [int(words[0, 0]), int(words[0, -1])],
        }
    )
print("RESULT " + json.dumps(result))
