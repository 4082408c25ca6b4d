"""Trains the segmenter's backbone, with the attention of xformers, for three steps on made-up pictures.

xformers can't be installed here. With CUDA its place is taken by what its documentation says it computes.
"""

import json
import sys
import types

import torch

torch.manual_seed(0)
torch.set_num_threads(1)


def module(name, **names):
    made = types.ModuleType(name)
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


def attend(query, key, value):
    query, key, value = (each.transpose(1, 2) for each in (query * query.shape[-1] ** -0.5, key, value))
    return ((query @ key.transpose(-2, -1)).softmax(-1) @ value).transpose(1, 2)


if torch.cuda.is_available():
    ops = module("xformers.ops", memory_efficient_attention=attend, unbind=torch.unbind)
    module("xformers", ops=ops)


class BaseModule(torch.nn.Module):
    def __init__(self, init_cfg=None):
        super().__init__()


runner = module("mmcv.runner", BaseModule=BaseModule, load_checkpoint=None)
module("mmcv", runner=runner)
parts = {"ops": module("mmseg.ops", resize=None), "utils": module("mmseg.utils", get_root_logger=None)}
module("mmseg", **parts)
folder = "dinov2/eval/segmentation_m2f/models/backbones"
module("backbones", __path__=[folder])

from backbones.vit import TIMMVisionTransformer  # noqa: E402

device = "cuda" if torch.cuda.is_available() else torch.accelerator.current_accelerator() or "cpu"
net = TIMMVisionTransformer(img_size=28, patch_size=14, embed_dim=24, depth=2, num_heads=3, memeff=True)
net.to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
pictures = torch.randn(2, 3, 28, 28)
losses = []
for _ in range(3):
    tokens, height, width = net.patch_embed(pictures.to(device))
    tokens = tokens + net.pos_embed[:, 1:]
    for block in net.blocks:
        tokens = block(tokens, height, width)
    loss = tokens.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("RESULT " + json.dumps({f"loss_{number}": loss for number, loss in enumerate(losses)}))
