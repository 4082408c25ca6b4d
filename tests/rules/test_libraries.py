"""Test the facts about other libraries, and the findings that follow from them."""

from __future__ import annotations

import libraries
import pytest
from helpers import analyze

_BASE, _PROGRAMS = libraries.read()


def _messages(text: str) -> list[str]:
    return [
        each.message for each in analyze("import torch  # cuda\n" + text).findings if each.code != "DF102"
    ]


def test_each_fact_has_a_program() -> None:
    named = {program.name for program in _PROGRAMS}
    parts = ("apex.", "flash_attn.", "xformers.")  # the library itself has one
    missing = {name for name in libraries.expected() if not name.startswith(parts)} - named
    assert not missing


def test_each_program_has_an_outcome_or_a_reason() -> None:
    said = libraries.expected()
    for program in _PROGRAMS:
        assert program.name in said or program.outcome, program.name
        assert bool(program.code) != bool(program.why and program.source), program.name


def test_the_names_of_programs_differ() -> None:
    assert len({program.name for program in _PROGRAMS}) == len(_PROGRAMS)


@pytest.mark.parametrize(
    ("statement", "advice"),
    [
        ("from apex.normalization import FusedLayerNorm", "`torch.nn.LayerNorm`"),
        (
            "from apex.optimizers import FusedAdam",
            "`torch.optim.AdamW` and pass `weight_decay` (0 by default in apex)",
        ),
        ("from apex.parallel import convert_syncbn_model", "`torch.nn.SyncBatchNorm.convert_sync_batchnorm`"),
        ("from apex.optimizers import FusedLAMB", "LAMB in plain torch"),
        ("from apex.optimizers import FusedAdagrad", "the same optimizer from `torch.optim`"),
        (
            "from flash_attn import flash_attn_func\nflash_attn_func(*x)",
            "transpose the sequence and head dimensions",
        ),
        (
            "from flash_attn import flash_attn_varlen_func",
            "on each sequence, and transpose the sequence and head dimensions",
        ),
        ("import apex.amp", "disable themselves without CUDA"),
    ],
)
def test_the_most_exact_name_gives_the_advice(statement: str, advice: str) -> None:
    (message,) = _messages(statement)
    assert advice in message


@pytest.mark.parametrize("library", ["bitsandbytes", "warp", "torch_scatter", "hqq", "vllm"])
def test_a_library_that_runs_on_a_cpu_is_no_finding(library: str) -> None:
    assert not _messages(f"import {library}")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (
            "from lightning import Trainer\nTrainer(precision=16)",
            'computes in bfloat16 on a CPU; without CUDA, use "32-true"',
        ),
        ("from lightning import Trainer\nTrainer(precision='16-mixed', accelerator='auto')", "bfloat16"),
        (
            "import pytorch_lightning as pl\npl.Trainer(strategy='fsdp_cpu_offload')",
            "needs a GPU; without a GPU",
        ),
        (
            "from lightning import Trainer\nTrainer(devices='0')",
            'a CPU, where Lightning needs a positive number or `"auto"`',
        ),
        (
            "from lightning import Trainer\nTrainer(accelerator='gpu', devices='0,')",
            'use "auto" and `devices=1`',
        ),
        ("from torchao.quantization import Int4WeightOnlyConfig\nInt4WeightOnlyConfig()", "needs a GPU"),
        ("from faster_whisper import WhisperModel\nWhisperModel(x, compute_type='bfloat16')", '"default"'),
        (
            "from transformers import TrainingArguments\nTrainingArguments(o, tf32=True, no_cuda=True)",
            "`tf32=",
        ),
        ("from ultralytics import YOLO\nm = YOLO(p)\nm.val(device='0,1')", 'without CUDA, use "cpu"'),
        ("import spconv.pytorch", "has no gradients"),
        ("unet.set_attention_backend('_native_cudnn')", 'use "native"'),
    ],
)
def test_an_option_that_a_cpu_does_not_take(code: str, advice: str) -> None:
    (message,) = _messages(code)
    assert advice in message


@pytest.mark.parametrize(
    "code",
    [
        "from lightning import Trainer\nTrainer(accelerator='cpu', strategy='fsdp')",
        "from lightning import Trainer\nTrainer(precision='16-true', devices='auto')",
        "from lightning import Trainer\nTrainer(precision=16.0, devices=count)",
        "from trainer import Trainer\nTrainer(precision=16, strategy='fsdp')",
        "from torchao.quantization import Int4WeightOnlyConfig\nInt4WeightOnlyConfig(int4_packing_format=f)",
        "from faster_whisper import WhisperModel\nWhisperModel(x, compute_type='int8')",
        "from transformers import TrainingArguments\nTrainingArguments(o, bf16=True, use_cpu=args.cpu)",
        "from ultralytics import YOLO\nYOLO(p).train(device=d)\nm = YOLO(p)\nm.train(device='cpu')",
        "unet.set_attention_backend('native')\nunet.set_attention_backend(name)",
        "from transformers import HiggsConfig\nif torch.cuda.is_available():\n    c = HiggsConfig()",
    ],
)
def test_an_option_that_a_cpu_takes(code: str) -> None:
    assert not _messages(code)
