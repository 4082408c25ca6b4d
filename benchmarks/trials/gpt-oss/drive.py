"""Generates text with a tiny mixture of experts whose weights are 4-bit blocks, by generate.py, twice."""

import json
import os
import runpy
import sys
import types

import safetensors
import safetensors.torch
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
real_open = safetensors.safe_open


class Opened:
    """A file whose tensors Python moves to the device that was asked for."""

    def __init__(self, file, framework, device):
        self.file, self.device = real_open(file, framework=framework, device="cpu"), device

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False

    def keys(self):
        return self.file.keys()

    def get_tensor(self, name):
        return self.file.get_tensor(name).to(self.device)


safetensors.safe_open = Opened


class Letters:
    eot_token = 39

    def encode(self, text):
        return [ord(c) % 38 for c in text]

    def decode(self, tokens):
        return chr(97 + tokens[0] % 26)


tokenizer = types.ModuleType("gpt_oss.tokenizer")
tokenizer.get_tokenizer = Letters
sys.modules["gpt_oss.tokenizer"] = tokenizer

config = {
    "num_hidden_layers": 2,
    "num_experts": 4,
    "experts_per_token": 2,
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 32,
    "head_dim": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "sliding_window": 6,
    "initial_context_length": 4096,
    "rope_scaling_factor": 4.0,
}
os.makedirs("tiny")
with open("tiny/config.json", "w") as f:
    json.dump(config, f)

g = torch.Generator().manual_seed(0)


def w(*shape):
    return (torch.randn(*shape, generator=g) * 0.3).bfloat16()


state = {"embedding.weight": w(40, 32) * 3, "unembedding.weight": w(40, 32) * 3, "norm.scale": torch.ones(32)}
for n in range(2):
    at = f"block.{n}."
    state |= {
        at + "attn.sinks": w(2),
        at + "attn.norm.scale": torch.ones(32),
        at + "attn.qkv.weight": w(128, 32),
        at + "attn.qkv.bias": w(128),
        at + "attn.out.weight": w(32, 64),
        at + "attn.out.bias": w(32),
        at + "mlp.norm.scale": torch.ones(32),
        at + "mlp.gate.weight": w(4, 32),
        at + "mlp.gate.bias": w(4),
        at + "mlp.mlp1_bias": w(4, 64),
        at + "mlp.mlp2_bias": w(4, 32),
    }
    for name, rows in (("mlp1", 64), ("mlp2", 32)):
        state[f"{at}mlp.{name}_weight.blocks"] = torch.randint(0, 256, (4, rows, 1, 16), generator=g).byte()
        state[f"{at}mlp.{name}_weight.scales"] = torch.randint(123, 126, (4, rows, 1), generator=g).byte()
safetensors.torch.save_file(state, "tiny/model.safetensors")

import gpt_oss.torch.model  # noqa: E402

heard = []
real_generate = gpt_oss.torch.model.TokenGenerator.generate


def generate(self, *args, **kwargs):
    heard.append([])
    for token, logprob in real_generate(self, *args, **kwargs):
        heard[-1].append((token, logprob))
        yield token, logprob


gpt_oss.torch.model.TokenGenerator.generate = generate
for temperature in ("0.0", "0.8"):
    sys.argv = ["generate.py", "tiny", "-p", "why did it cross", "-l", "8", "-t", temperature]
    torch.manual_seed(1)
    runpy.run_path("gpt_oss/generate.py", run_name="__main__")
result = {"runs": len(heard)}
for name, tokens in zip(("greedy", "sampled"), heard, strict=False):
    result |= {
        name + "_tokens": len(tokens),
        name + "_sum": sum(token for token, _ in tokens),
        name + "_logprob": round(sum(logprob for _, logprob in tokens), 2),
    }
print("RESULT " + json.dumps(result))
