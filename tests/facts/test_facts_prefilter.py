"""`devicefix.facts.prefilter`: which files and lines can hold a tie to CUDA."""

from __future__ import annotations

import ast
import json

import pytest

from devicefix import check_source
from devicefix.config.settings import Settings
from devicefix.engine.check import matters
from devicefix.facts.prefilter import (
    holds_word,
    imported_words,
    lines_that_matter,
    lines_with,
    lines_with_name,
    may_matter,
    uses_torch,
)
from devicefix.rules.registry import words
from devicefix.rules.shared.library_facts import LIBRARIES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.cuda()", True),
        ("backend = 'nccl'", True),
        ("import torch", False),
        ("import triton.language as tl", True),
        ("from apex import amp", True),
        ("the apex of a triton", False),
        ("pin_memory", False),
        ("torch pin_memory", True),
        ("torch nvtx", True),
        ("torch DistributedDataParallel", True),
        ("torch CUDAExtension", True),
        ("torch x.get_device()", True),
        ("torch SyncBatchNorm", True),
        ("torch.accelerator.x", True),
        ("torch self.accelerator.x", False),
        ('torch\n"""Call x.cuda()."""', False),
        ("torch\n'''a \\\\\\''' x.cuda()'''", False),
        ("torch\nx = '''x.cuda()'''", True),
        ("torch\nexec('''\nx.cuda()''')", True),
        ('torch\nx = f"""{y.cuda()}"""', True),
        ('torch\nx = fR"""{y.cuda()}"""', True),
        ('torch\nx = Rf"""{y.cuda()}"""', True),
        ('torch\nx = \'"""\'\ny.cuda()\nz = \'"""\'', True),
        ("torch kind == 'flash_attention_2'", False),
        ("torch f(kind='flash_attention_2')", True),
        ("torch use_flash_attn = True", False),
        ("torch import_module('flash_attn')", True),
        ("torch\nfrom here import torch_int", False),
        ("torch\nimport torch_int", True),
        ("torch for device in places: x.to(device)", True),
        ("torch.load(x)", True),
        ("torch.jit . load (x)", True),
        ("torch json.load(x)", False),
        ("import torch as t\nt.load(x)", True),
        ("t = torch\nt.load(x)", True),
        ("from torch import (nn,\n  load)", True),
        ("from torch import nn, load", True),
        ("torch load_state_dict_from_url", True),
        ("json.load(x)", False),
        ("torch x.to(0)", True),
        ("torch x.to(device=0)", True),
        ("torch x.to(args.local_rank)", True),
        ("torch x.to(gpu)", True),
        ("torch x.to(device)", False),
        ("torch where = 0\nx.to(where)", True),
        ("torch def f(x, where: int = 0): x.to(device=where)", True),
        ("torch for where in [0, 1]: x.to(where, non_blocking=True)", True),
        ("torch for where in ([0, 1] if several else []): x.to(where)", True),
        ("torch for where in range(2): x.to(where)", True),
        ("torch where = int(text)\nx.to(where)", True),
        ("torch where = args.gpu\nx.to(where)", True),
        ("torch self.where = get_rank()\nf(device=self.where)", True),
        ("torch for where, x in enumerate(xs): x.to(where)", True),
        ("torch for x, y in zip(range(2), xs): y.to(x)", True),
        ("torch x.to(config['gpu'])", True),
        ("torch x.to(max(0, -1))", True),
        ("torch x.to(*[[0, 1][0]])", True),
        ("torch x.to(*[int('1')])", True),
        ("torch x.to(where or 1)", True),
        ("torch class A:\n    where = max(0, -1)\ny = f(device=A.where)", True),
        ("torch where = max(\n    0, -1)\nx.to(where)", True),
        ("torch x.to(max(  # why\n    0, -1))", True),
        ("torch def move(x, where=-1): return x.to(where)\nmove(ones(  # why\n    2), 0)", True),
        ("torch a = 0\nwhere = \\\n  a\nx.to(where)", True),
        ("torch def move(where): return x.to(where)\npartial(move, max(0, -1))()", True),
        ("torch def move(where): return x.to(where)\n[move(w) for w in [max(0, -1)]]", True),
        ("torch def move(where): return x.to(where)\nlist(map(move, [1]))", True),
        ("torch async def pick(): return [0, 1][0]\nwhere = asyncio.run(pick())\nx.to(where)", True),
        ("torch setattr(self, 'where', [0, 1][0])\nf(device=self.where)", True),
        ("torch try: raise ValueError(0)\nexcept ValueError as e: x.to(e.args[0])", True),
        ("torch A = namedtuple('A', ['where'])\na = A({'k': 0}['k'])\nx.to(a.where)", True),
        ("torch class A:\n    for where in [1]: pass\nf(device=A().where)", True),
        ("torch match a:\n    case object(\n    k=where):\n        x.to(where)", True),
        ("torch where = {'k': 1}['k']\nx.to(where)", True),
        ("torch where = next(iter([0]))\nx.to(where)", True),
        ("torch where = (lambda: 0)()\nx.to(where)", True),
        ("torch where = types.SimpleNamespace(a=0).a\nx.to(where)", True),
        ("torch all = [1]\nwhere = all[0]\nx.to(where)", True),
        ("torch all = {}\nall['where'] = 1\nx.to(all['where'])", True),
        ("torch all = []\nall.append(0)\nx.to(all[-1])", True),
        ("torch _, where = 1, 0\nx.to(where)", True),
        ("torch a = 1\nb = a\ndef move(x, where=b): return x.to(where)", True),
        ("torch a = 1\ndef move(x, where=None): return x.to(where or a)", True),
        ("torch def move(x, where): return x.to(where)\nmove(f(x), 1)", True),
        ("torch def pick():\n    return 1\nx.to(pick())", True),
        ("torch with nullcontext([0, 1][0]) as where: x.to(where)", True),
        ("torch match {'k': 1}:\n    case {'k': where}:\n        f(**dict(device=where))", True),
        ("torch list(map(lambda where: x.to(where), [1]))", True),
        ("torch where = y.size(0)\nx.to(where.dtype)", False),
        ("torch y = z.permute(0, 2)[:, 1]\nx.to(y.device)", False),
        ("torch y = [0, 1]\nx.to(y[0].device)", False),
        ("torch y = 1\nx.to(y.dtype)", False),
        ("torch import flags as F\ny = F.gpu()\nx.to(y)", True),
        ("torch ys = range(2)\nfor i, y in enumerate(ys): x.to(y)", True),
        ("import torch\nx.to(torch.float)", False),
        ("import cupy", True),
        ("from nvidia.dali import fn", True),
        ("import cupyre", False),
        ("torch where = 0.5\nx.to(dtype)", False),
        ("torch f(device=0)", True),
        ("torch device(1)", True),
        ("torch device = x", True),
        ("torch device = torch.device(0)", True),
        ("torch a, device, b = init()", True),
        ("torch device = torch.device(index)", True),
        ("torch device = torch.device('cpu')\\nx.to(device)", False),
        ("torch def move(x, device): return x.to(device)\\nmove(x, 0)", True),
        ("torch def move(x, device): return x.to(device)\\nmove(x, y)", False),
        ("torch class A:\\n    def __init__(self, device): self.device = device\\nA(device=0)", True),
        ("torch class A:\\n    def __init__(self, device): self.device = device\\nA(rank)", True),
        ("old = [p.cpu() for p in ps]\np.add_(1)", True),
        ("old = p.cpu()\nopt.step()", True),
        ("y = x.cpu().apply_(f)", True),
        ("best = {k: v.cpu() for k, v in net.state_dict().items()}", True),
        ("old = p.cpu()", False),
        ("y = x.cpu().numpy()\nx.add_(1)", False),
    ],
)
def test_may_matter(text: str, expected: bool) -> None:
    assert may_matter(text.encode()) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch; self.register_buffer('a', Parameter(b))", True),
        ("torch; self.register_buffer('a', b)", False),
        ("torch; x.to(get_rank())", True),
        ("torch; print(get_rank())", False),
        ("torch; autocast(x, dtype=float16)", False),
        ("torch; y.to(x) + x.size(0)", False),
        ("torch; y.to(x) + x", True),
    ],
)
def test_words_that_need_another(text: str, expected: bool) -> None:
    assert matters(text.encode(), Settings()) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch", True),
        ("from transformers import AutoModel", True),
        ("from lightning.fabric import Fabric", True),
        ("import diffusers.utils", True),
        ("    import os, accelerate as a", True),
        ("import\tvllm", True),
        ('"from peft import PeftModel\\n",', True),  # in a notebook
        ("import transform", False),
        ("import os\nfrom . import utils", False),
        ("# the transformers of a station", False),
    ],
)
def test_uses_torch(text: str, expected: bool) -> None:
    assert uses_torch(text.encode()) is expected


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_import_of_a_library_that_needs_cuda_matters_without_torch(library: str) -> None:
    assert matters(f"import {library}\n".encode(), Settings())
    assert matters(f"from {library} import a\n".encode(), Settings())


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import AutoModel\nmodel = AutoModel.from_pretrained(name, device_map=0)",
        "from transformers import pipeline\ngenerate = pipeline('fill-mask', device=0)",
        "from transformers import AutoModel\nmodel = AutoModel.from_pretrained(name).to(0)",
        "from diffusers import DiffusionPipeline\npipe = make()\npipe.enable_model_cpu_offload()",
        "from accelerate import dispatch_model\ndispatch_model(net, device_map={'': 0})",
        "from trl import SFTConfig\noptions = SFTConfig('out', bf16=True)",
        "import lightning as L\ntrainer = L.Trainer(accelerator='gpu')",
        "attn_implementation = 'flash_attention_2'",
        "from xformers import ops",
    ],
)
def test_a_tie_in_a_file_that_does_not_name_torch(text: str) -> None:
    assert check_source(text + "\n")
    notebook = {
        "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text}],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    assert check_source(json.dumps(notebook), filename="x.ipynb")


@pytest.mark.parametrize("word", words(Settings()))
def test_each_word_of_a_rule_is_found_alone_and_inside_others(word: bytes) -> None:
    found = words(Settings())
    assert holds_word(word, found)
    assert holds_word(b"x\n_" + word + b"_\n", found)
    for end in (word[1:], word[:-1]):
        assert holds_word(end, found) is any(each in end for each in found)


def test_words_that_hold_others() -> None:
    found = (b"apex", b"apex_C", b"flash_att", b"")
    assert [holds_word(text, found[:3]) for text in (b"apex_C", b"flash_attn", b"ape flash_", b"")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert holds_word(b"", found)
    assert not holds_word(b"apex", ())


@pytest.mark.parametrize("word", ["cuda", "CUDA", "my_cuda_x", "Cuda.y()"])
def test_lines_that_matter(word: str) -> None:
    assert lines_that_matter(f"x\n{word} {word}\ny\n\n z {word}", (b"cuda",)) == [2, 5]


def test_several_words() -> None:
    assert lines_that_matter("a\npick()\nb .to\nPICK .to", (b"Pick", b".to")) == [2, 3, 4]
    assert lines_that_matter("import torch\nx = 1\n", ()) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from torch.cuda import sync as s, other", [b"s", b"other"]),
        ("from torch.cuda import (\n    sync as s,\n)", [b"s"]),
        ("from torch.cuda.amp import s", [b"s"]),
        ("import torch.cuda as s", [b"s"]),
        ("from torch import nn, cuda as s", [b"s"]),
        ("from .library import pick_gpu as s", [b"s"]),
        ("import torch, torch.cuda", []),  # used by its full name
        ("from torch.cuda import *", []),
        ("from torch import nn as n", []),
    ],
)
def test_imported_words(line: str, expected: list[bytes]) -> None:
    imports = [node for node in ast.parse(line).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert list(imported_words(imports, (b"CUDA", b"Pick_GPU"))) == expected


def test_lines_with() -> None:
    assert lines_with("ab\nb ab ab\n\nxaby", "ab") == [1, 2, 4]
    assert lines_with("", "ab") == []


def test_lines_with_name() -> None:
    assert lines_with_name("ab\nxab abx _ab\nx.ab\nab1\nab(ab)\nü ab\nüab", "ab") == [1, 3, 5, 6]
