"""Quantizes a small model with each number of bits, fine-tunes LoRA weights, saves and loads it."""

import json
import os
import sys
import types

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


module("hqq.backends.torchao", HQQLinearTorchWeightOnlynt4=type("Int4", (), {}))  # needs torchao
torch.compile = lambda function=None, **_: function if function else (lambda f: f)

from hqq.core.peft import PeftUtils  # noqa: E402
from hqq.core.quantize import BaseQuantizeConfig, HQQBackend, HQQLinear, Quantizer  # noqa: E402
from hqq.engine.base import HQQWrapper  # noqa: E402
from hqq.models.base import BaseHQQModel, BasePatch  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = (
            nn.Linear(64, 128),
            nn.Linear(128, 64, bias=False),
            nn.LayerNorm(64),
        )

    def forward(self, x):
        return self.norm(x + self.second(torch.relu(self.first(x))))


class Net(nn.Module):
    arch_key = "net"

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class NetHQQ(BasePatch, BaseHQQModel):
    @classmethod
    def create_model(cls, save_dir, kwargs):
        return Net()

    @classmethod
    def cache_model(cls, model, save_dir):
        with open(os.path.join(save_dir, "config.json"), "w") as f:
            json.dump({"architecture": "net"}, f)


class Engine(HQQWrapper):
    _HQQ_REGISTRY = {"net": NetHQQ}  # noqa: RUF012

    @classmethod
    def _get_arch_key_from_save_dir(cls, save_dir):
        return "net"


result = {}
weight = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
for bits in (8, 4, 3, 2, 1):
    packed, meta = Quantizer.quantize(weight, nbits=bits, group_size=64, optimize=False, round_zero=bits == 4)
    result[f"loss_{bits}"] = float((Quantizer.dequantize(packed, meta).float() - weight).abs().mean())

# ---- one layer whose metadata is kept in pinned memory
config = BaseQuantizeConfig(nbits=4, group_size=64, offload_meta=True)
config["weight_quant_params"]["optimize"] = False
layer = HQQLinear(nn.Linear(64, 16), config, compute_dtype=torch.float32)
x = torch.randn(5, 64, generator=torch.Generator().manual_seed(2))
result["offloaded"] = float(layer.dequantize().abs().sum())
result["device"] = float(layer.W_q.device == layer.bias.device)

# ---- a model: quantize, save, load, LoRA
model = Net()
config = BaseQuantizeConfig(nbits=4, group_size=32)
config["weight_quant_params"]["optimize"] = False
Engine.quantize_model_(model, config, compute_dtype=torch.float32)
x = x.to(model.head.W_q.device if isinstance(model.head, HQQLinear) else model.head.weight.device)
out = model(x)
result["out"] = float(out.abs().sum())
os.makedirs("saved")
Engine.save_quantized_(model, "saved")
again = Engine.from_quantized("saved", compute_dtype=torch.float32)
HQQLinear.set_backend(HQQBackend.PYTORCH_FORWARD)
result["again"] = float(again(x.to(next(again.parameters()).device)).abs().sum())
HQQLinear.set_backend(HQQBackend.PYTORCH)

lora = {"lora_type": "default", "r": 4, "lora_alpha": 4, "dropout": 0.0, "train_dtype": torch.float32}
PeftUtils.add_lora(
    model,
    dict.fromkeys(("layers.first", "layers.second", "head"), lora)
    if not hasattr(model, "linear_tags")
    else dict.fromkeys(model.linear_tags, lora),
)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.1)
for _ in range(3):
    loss = nn.functional.cross_entropy(model(x), torch.arange(5).to(x.device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
result |= {"trained": len(trained), "tuned": float(loss)}
PeftUtils.save_lora_weights(model, "lora.pt")
print("RESULT " + json.dumps(result))
