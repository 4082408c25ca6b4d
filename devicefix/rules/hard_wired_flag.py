from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from devicefix.devices.arguments import name_fix
from devicefix.devices.context import Context
from devicefix.facts import dotted, with_defaults
from devicefix.facts.flow.forwards import Use
from devicefix.facts.flow.kinds import NUMBERS
from devicefix.facts.flow.reaching import BINDINGS, reaching
from devicefix.facts.flow.sources import How, Sources
from devicefix.facts.path_conditions import conditions_around
from devicefix.facts.values import (
    cuda_string,
    declared_names,
    integer,
    is_constant,
    last_name,
    literal_index,
    target_name,
)
from devicefix.model import Finding, Fix
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.device_numbers import is_fixed_where_bound
from devicefix.rules.shared.holders import names_of_holders, only_with_cuda, shared_names
from devicefix.rules.shared.libraries import CudaLibraries
from devicefix.rules.shared.library_facts import (
    ARGUMENTS,
    ATTENTION_BACKEND,
    ATTENTION_BACKENDS,
    ATTENTIONS,
    CALLS,
    COPING,
    LIGHTNING,
    OFFLOADS,
    SWITCHES,
    XFORMERS,
    Argument,
)

_BY_NAME = "only the name of the setting suggests CUDA"
_LOADS = "selects a GPU, which may not exist; use it only if CUDA is available"
_MAY_LOAD = "may select CUDA; use it only if CUDA is available"
_FLAG = re.compile(r"(use|is|on|with|enable)?_?(cuda|gpu)", re.I)
_NUMBER = re.compile(r"(device|gpu)_(id|index)")
_ASKED = re.compile(r"cuda|gpu", re.I)
_GPU = ("gpu", "cuda")  # accelerators of Lightning
_PROCESS = ("process_index", "local_process_index")  # ints of accelerate's Accelerator and PartialState
# The arguments that a CPU can't take, by their names.
_ARGUMENTS = {
    option: [each for each in ARGUMENTS if each.option == option]
    for option in {each.option for each in ARGUMENTS}
}
_CALLED = {name for _, name in CALLS}
_OF_DIFFUSERS = {*OFFLOADS, XFORMERS, ATTENTION_BACKEND}


def _length(devices: ast.expr) -> int | None:
    """Return how many devices a literal selects, where -1 may be any number; None for what a CPU accepts, too.

    Source: Lightning 2.6, `_parse_cpu_cores` and `_normalize_parse_gpu_string_input`.
    """
    match devices:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return len(elements) or 1
        case ast.Constant(value=str(text)) if not _ON_CPU.fullmatch(text):
            return len([part for part in text.split(",") if part.strip()]) or 1
        case ast.UnaryOp():
            return 1
    return None


_FOLLOWED = How.BOUND | How.PASSED | How.DEFAULT | How.OPTION | How.CHOICE
_RAY = re.compile(r"\bray\b")
_STEPS = 4  # from an argument to a literal
_ON_CPU = re.compile(r"auto|\s*0*[1-9]\d*\s*")  # what Lightning's `devices` may be without GPUs
_SETTINGS = ("device_map", "accelerator", "max_memory")
_ADDS_CPU = re.compile(r"\[[\"']cpu[\"']\] *=")  # to the memory of GPUs
_ATTENTION = "attn_implementation"
_UNSEEN = "only the name suggests what this setting does"


class HardWiredFlag(Rule):
    """
    ## What it does
    Finds options that make other libraries use CUDA on every machine, such as `Config.cuda = True`,
    `Trainer(accelerator="gpu")`, `device_map="cuda"`, `attn_implementation="flash_attention_2"` and
    `TrainingArguments(bf16=True)`. Also finds calls that fail on a CPU, such as `pipeline.enable_model_cpu_offload()`.

    The rule also reports Lightning's `precision="16-mixed"`, which becomes bfloat16 on a CPU. It ignores options that
    work on a CPU, such as `TrainingArguments(fp16=True)` and bitsandbytes quantization in transformers.

    ## Why it matters
    Without CUDA, most reported options raise an error.

    ## Example
    ```python
    Config.cuda = True
    ```

    ## Use instead
    ```python
    Config.cuda = torch.cuda.is_available()
    ```

    In Lightning, replace `accelerator="gpu"` with `"auto"`, and `"cuda"` with `"cuda" if torch.cuda.is_available() else
    "cpu"`. If the call also passes a list such as `devices=[0]`, use `devices=[0] if torch.cuda.is_available() else 1`:
    on a CPU, a list raises a `TypeError`.

    ## Fix safety
    The fix is usually safe if the library documents what the option needs and which value works on a CPU. Examples are
    `accelerator` in Lightning's `Trainer` and `Fabric`, `bf16` in `TrainingArguments`, and `device_map` and
    `attn_implementation` in Hugging Face libraries.

    The fix is unsafe if only the name of a setting suggests that it selects CUDA. It is also unsafe if `devices` is a
    variable, because without CUDA, the fixed program uses a single process. Other options have no fix, because the
    right change depends on the program.
    """

    code = "DF904"
    name = "hard-wired-flag"
    summary = "An option or call makes a library depend on CUDA"
    words = (
        b"cuda", b"accelerator=", b"accelerator\"", b"accelerator'", b"gpu=True", b"gpus=", b"num_gpus", b"gpu_id=",
        b"device_id=", b"gpu_index=", b"device_index=", b"device_map", b"max_memory",
        b"kernels-community", b"compute_type", b"enable_model_cpu", b"enable_sequential_cpu", b"enable_xformers",
        b"set_attention_backend", b"bf16=True", b"full_eval=True", b"tf32=True", b"flash_attention_2=True", b"use_liger_kernel", b"BitsAndBytesConfig",
        b"FP8Config", b"Fp8Config", b"EetqConfig", b"HiggsConfig", b"SpQRConfig", b"VptqConfig", b"Int4WeightOnly", b"Float8DynamicActivation",
        b"CPUOffloadOptimizer", b"PinMemory", b"PyNcclCommunicator", b"CUDAExec", b"TensorrtExec", b"16-mixed", b"precision=16", b"precision=\"transformer-engine", b"precision='transformer-engine", b"strategy=\"fsdp", b"strategy='fsdp", b"strategy=\"deepspeed", b"strategy='deepspeed", b"devices=[",
    )  # fmt: skip
    common_words = (b"accelerator", b"device", b"gpu", b"attn_implementation", b'"flash_att', b"'flash_att")
    INVALID = (
        Example(
            "the flag of a library",
            before="""
                from library import Config

                Config.cuda = True
            """,
            after="""
                import torch
                from library import Config

                Config.cuda = torch.cuda.is_available()
            """,
            unsafe=True,
        ),
        Example(
            "an argument of a library",
            before="""
                import recognizer
                import torch

                reader = recognizer.Reader(['en'], gpu=True)
            """,
            after="""
                import recognizer
                import torch

                reader = recognizer.Reader(['en'], gpu=torch.cuda.is_available())
            """,
            unsafe=True,
        ),
        Example(
            "an argument that is documented to choose between the GPU and the CPU",
            before="""
                import torch
                import torch_fidelity

                scores = torch_fidelity.calculate_metrics(
                    input1=made,
                    input2=real,
                    cuda=True,  # faster
                    fid=True,
                )
            """,
            after="""
                import torch
                import torch_fidelity

                scores = torch_fidelity.calculate_metrics(
                    input1=made,
                    input2=real,
                    cuda=torch.cuda.is_available(),  # faster
                    fid=True,
                )
            """,
        ),
        Example(
            "the number of a GPU for a library",
            before="""
                import torch
                from library import Engine, Pool

                engine = Engine(device_id=0)
                pool = Pool(gpu_id=options.gpu_id)
            """,
        ),
        Example(
            "an accelerator by name",
            before="""
                import pytorch_lightning as pl

                trainer = pl.Trainer(accelerator='gpu', devices=1)
            """,
            after="""
                import pytorch_lightning as pl
                import torch

                trainer = pl.Trainer(accelerator='gpu' if torch.cuda.is_available() else 'auto', devices=1)
            """,
        ),
        Example(
            "an accelerator by name, with a list of devices",
            before="""
                from lightning.fabric import Fabric

                fabric = Fabric(accelerator="cuda", devices=[0, 1])
            """,
            after="""
                import torch
                from lightning.fabric import Fabric

                fabric = Fabric(accelerator="cuda" if torch.cuda.is_available() else "cpu",
                                devices=[0, 1] if torch.cuda.is_available() else 2)
            """,
        ),
        Example(
            "an accelerator by name, with the devices of an option",
            before="""
                from lightning import Trainer  # torch

                trainer = Trainer(accelerator="gpu", devices=options.devices)
            """,
            after="""
                import torch
                from lightning import Trainer  # torch

                trainer = Trainer(accelerator="gpu" if torch.cuda.is_available() else "auto",
                                  devices=options.devices if torch.cuda.is_available() else 1)
            """,
            unsafe=True,
        ),
        Example(
            "an accelerator of a subclass, of an option and of a dictionary",
            before="""
                from trainer import Trainer  # torch

                Trainer(devices=1, accelerator="gpu")
                parser.add_argument("--accelerator", default="gpu")
                options = {"accelerator": "gpu"}
                options["accelerator"] = "cuda"
            """,
        ),
        Example(
            "an accelerator that a function gets",
            before="""
                import lightning  # torch

                def make(accelerator="gpu"):
                    if accelerator == "gpu":
                        print("a GPU")
                    return lightning.Trainer(accelerator=accelerator)
            """,
        ),
        Example(
            "GPUs by number, and nothing else",
            before="""
                import pytorch_lightning as pl

                trainer = pl.Trainer(gpus=[0, 1], max_epochs=3)
            """,
        ),
        Example(
            "a map of devices",
            before="""
                from transformers import AutoModel  # with torch

                model = AutoModel.from_pretrained(name, device_map={"": 0})
            """,
            after="""
                import torch
                from transformers import AutoModel  # with torch

                model = AutoModel.from_pretrained(name, device_map={"": 0 if torch.cuda.is_available() else "cpu"})
            """,
        ),
        Example(
            "a device for everything, as a default",
            before="""
                from transformers import AutoModel  # with torch


                def load(name, device_map="cuda"):
                    return AutoModel.from_pretrained(name, device_map=device_map)
            """,
            after="""
                import torch
                from transformers import AutoModel  # with torch


                def load(name, device_map="cuda" if torch.cuda.is_available() else "cpu"):
                    return AutoModel.from_pretrained(name, device_map=device_map)
            """,
        ),
        Example(
            "a map of devices with the number of the process",
            before="""
                import os
                from transformers import AutoModel  # with torch

                rank = int(os.environ.get("LOCAL_RANK", 0))
                where = {"": rank}
                model = AutoModel.from_pretrained(name, device_map=where if distributed else None)
            """,
            after="""
                import os
                import torch
                from transformers import AutoModel  # with torch

                rank = int(os.environ.get("LOCAL_RANK", 0))
                where = {"": rank if torch.cuda.is_available() else "cpu"}
                model = AutoModel.from_pretrained(name, device_map=where if distributed else None)
            """,
        ),
        Example(
            "the memory of GPUs",
            before="""
                from accelerate import infer_auto_device_map  # with torch

                infer_auto_device_map(model, max_memory={0: "10GB", "cpu": "30GB"})
            """,
        ),
        Example(
            "the memory of all GPUs, of which there are none on a CPU",
            before="""
                import torch
                from accelerate import infer_auto_device_map

                memory = {index: "10GB" for index in range(torch.cuda.device_count())}
                infer_auto_device_map(model, max_memory=memory)
            """,
        ),
        Example(
            "an implementation of attention",
            before="""
                from transformers import AutoModel  # with torch

                options = {"attn_implementation": "flash_attention_2"}
                model = AutoModel.from_pretrained(name, **options)
            """,
            after="""
                import torch
                from transformers import AutoModel  # with torch

                options = {"attn_implementation": "flash_attention_2" if torch.cuda.is_available() else "sdpa"}
                model = AutoModel.from_pretrained(name, **options)
            """,
        ),
        Example(
            "an implementation of attention in a variable with two values",
            before="""
                from transformers import AutoModel  # with torch

                def load(path, fast):
                    if fast:
                        kind = "flash_attention_2"
                    else:
                        kind = "sdpa"
                    return AutoModel.from_pretrained(path, attn_implementation=kind)
            """,
            after="""
                import torch
                from transformers import AutoModel  # with torch

                def load(path, fast):
                    if fast:
                        kind = "flash_attention_2" if torch.cuda.is_available() else "sdpa"
                    else:
                        kind = "sdpa"
                    return AutoModel.from_pretrained(path, attn_implementation=kind)
            """,
        ),
        Example(
            "an implementation of attention: a default, an option, an arm, a setting of a configuration, of a subclass",
            before="""
                import argparse
                import torch
                from transformers import AutoConfig, AutoModel, LlamaModel

                parser = argparse.ArgumentParser()
                parser.add_argument("--kind", default="flash_attention_2")
                args = parser.parse_args()
                config = AutoConfig.from_pretrained("x")
                config._attn_implementation = "flash_attention_2"
                a = AutoModel.from_pretrained("x", attn_implementation=args.kind)
                b = AutoModel.from_pretrained("x", attn_implementation="flash_attention_2" if args.fast else "eager")


                class Net(LlamaModel):
                    @classmethod
                    def load(cls, kind="flash_attention_3"):
                        options = {}
                        options["attn_implementation"] = kind
                        return cls.from_pretrained("x", **options)
            """,
            after="""
                import argparse
                import torch
                from transformers import AutoConfig, AutoModel, LlamaModel

                parser = argparse.ArgumentParser()
                parser.add_argument("--kind", default="flash_attention_2" if torch.cuda.is_available() else "sdpa")
                args = parser.parse_args()
                config = AutoConfig.from_pretrained("x")
                config._attn_implementation = "flash_attention_2" if torch.cuda.is_available() else "sdpa"
                a = AutoModel.from_pretrained("x", attn_implementation=args.kind)
                b = AutoModel.from_pretrained(
                    "x", attn_implementation="flash_attention_2" if args.fast and torch.cuda.is_available() else "eager"
                )


                class Net(LlamaModel):
                    @classmethod
                    def load(cls, kind="flash_attention_3" if torch.cuda.is_available() else "sdpa"):
                        options = {}
                        options["attn_implementation"] = kind
                        return cls.from_pretrained("x", **options)
            """,
        ),
        Example(
            "an implementation of attention for what may be of no library",
            before="""
                import torch

                model = loader.from_pretrained(name, attn_implementation="flash_attention_2", device_map="cuda")
            """,
            after="""
                import torch

                model = loader.from_pretrained(
                    name,
                    attn_implementation="flash_attention_2" if torch.cuda.is_available() else "sdpa",
                    device_map="cuda" if torch.cuda.is_available() else "cpu",
                )
            """,
            unsafe=True,
        ),
        Example(
            "a map of several devices, and arguments of a model for a pipeline",
            before="""
                from accelerate import dispatch_model  # with torch
                from transformers import pipeline

                dispatch_model(model, device_map={"encoder": 0, "decoder": 1})
                pipeline("text-generation", model_kwargs={"attn_implementation": "flash_attention_2"})
            """,
            after="""
                import torch
                from accelerate import dispatch_model  # with torch
                from transformers import pipeline

                dispatch_model(model, device_map={"encoder": 0, "decoder": 1} if torch.cuda.is_available() else {"": "cpu"})
                pipeline("text-generation",
                         model_kwargs={"attn_implementation": "flash_attention_2" if torch.cuda.is_available() else "sdpa"})
            """,
        ),
        Example(
            "the old option for the implementation of attention",
            before="""
                import torch
                from transformers import AutoModel

                model = AutoModel.from_pretrained(name, use_flash_attention_2=True)
            """,
            after="""
                import torch
                from transformers import AutoModel

                model = AutoModel.from_pretrained(name, use_flash_attention_2=torch.cuda.is_available())
            """,
        ),
        Example(
            "options and fields",
            before="""
                from dataclasses import dataclass, field  # with torch


                @dataclass
                class Options:
                    attn_implementation: str = field(default="flash_attention_2")


                parser.add_argument("--device-map", default="cuda:0")
            """,
        ),
        Example(
            "half precision in CTranslate2",
            before="""
                from faster_whisper import WhisperModel  # with torch

                model = WhisperModel(size, device=place, compute_type="float16")
            """,
            after="""
                import torch
                from faster_whisper import WhisperModel  # with torch

                model = WhisperModel(size, device=place, compute_type="float16" if torch.cuda.is_available() else "default")
            """,
        ),
        Example(
            "half precision in CTranslate2, as the default of an option",
            before="""
                import argparse
                from faster_whisper import WhisperModel  # with torch


                def read(path, kind):
                    return WhisperModel(path, device=place, compute_type=kind)


                parser = argparse.ArgumentParser()
                parser.add_argument("-p", "--precision", default="float16")
                options = parser.parse_args()
                read("small", kind=options.precision)
            """,
        ),
        Example(
            "low precision in training",
            before="""
                from transformers import TrainingArguments  # with torch

                options = TrainingArguments("out", bf16=True)
            """,
            after="""
                import torch
                from transformers import TrainingArguments  # with torch

                options = TrainingArguments("out", bf16=torch.cuda.is_available())
            """,
        ),
        Example(
            "low precision in evaluation, with the CPU switched off",
            before="""
                from transformers import TrainingArguments  # with torch

                options = TrainingArguments("out", bf16_full_eval=True, use_cpu=False)
            """,
            after="""
                import torch
                from transformers import TrainingArguments  # with torch

                options = TrainingArguments("out", bf16_full_eval=torch.cuda.is_available(), use_cpu=False)
            """,
        ),
        Example(
            "TensorFloat-32, which no CPU has",
            before="""
                from transformers import TrainingArguments  # with torch

                options = TrainingArguments("out", tf32=True, use_cpu=True)
            """,
            after="""
                import torch
                from transformers import TrainingArguments  # with torch

                options = TrainingArguments("out", tf32=torch.cuda.is_available(), use_cpu=True)
            """,
        ),
        Example(
            "the kernels of Liger",
            before="""
                from trl import SFTConfig  # with torch

                options = SFTConfig("out", use_liger_kernel=True)
            """,
            after="""
                import torch
                from trl import SFTConfig  # with torch

                options = SFTConfig("out", use_liger_kernel=torch.cuda.is_available())
            """,
        ),
        Example(
            "half precision in Lightning, which becomes bfloat16",
            before="""
                import lightning as L  # with torch

                trainer = L.Trainer(max_epochs=1, precision="16-mixed")
            """,
        ),
        Example(
            "a strategy of Lightning that needs a GPU",
            before="""
                from lightning.fabric import Fabric  # with torch

                fabric = Fabric(strategy="deepspeed_stage_2", precision="bf16-mixed")
            """,
        ),
        Example(
            "a list of devices, with the automatic accelerator",
            before="""
                import pytorch_lightning as pl

                trainer = pl.Trainer(accelerator="auto", devices=[0])
            """,
        ),
        Example(
            "all devices by the number -1, which a CPU does not take",
            before="""
                from lightning import Trainer  # torch

                trainer = Trainer(accelerator="gpu", devices=-1)
            """,
            after="""
                import torch
                from lightning import Trainer  # torch

                trainer = Trainer(accelerator="gpu" if torch.cuda.is_available() else "auto",
                                  devices=-1 if torch.cuda.is_available() else 1)
            """,
        ),
        Example(
            "an implementation of attention that is downloaded",
            before="""
                from transformers import AutoModel  # with torch

                model = AutoModel.from_pretrained(name, attn_implementation="kernels-community/flash-attn3")
            """,
            after="""
                import torch
                from transformers import AutoModel  # with torch

                model = AutoModel.from_pretrained(
                    name, attn_implementation="kernels-community/flash-attn3" if torch.cuda.is_available() else "sdpa"
                )
            """,
        ),
        Example(
            "a quantization that needs a GPU",
            before="""
                from transformers import FineGrainedFP8Config  # with torch

                config = FineGrainedFP8Config()
            """,
        ),
        Example(
            "the quantization of bitsandbytes in diffusers",
            before="""
                from diffusers import BitsAndBytesConfig  # with torch

                config = BitsAndBytesConfig(load_in_8bit=True)
            """,
        ),
        Example(
            "the attention of a model of diffusers",
            before="""
                import torch

                pipeline.transformer.set_attention_backend("flash")
            """,
        ),
        Example(
            "a provider of ONNX Runtime in optimum",
            before="""
                from optimum.onnxruntime import ORTModelForCausalLM  # with torch

                model = ORTModelForCausalLM.from_pretrained(name, provider="CUDAExecutionProvider")
            """,
            after="""
                import torch
                from optimum.onnxruntime import ORTModelForCausalLM  # with torch

                model = ORTModelForCausalLM.from_pretrained(
                    name, provider="CUDAExecutionProvider" if torch.cuda.is_available() else "CPUExecutionProvider"
                )
            """,
        ),
        Example(
            "a pipeline that moves its parts to the accelerator",
            before="""
                import torch

                pipeline.enable_model_cpu_offload(gpu_id=0)
            """,
        ),
        Example(
            "the attention of xformers",
            before="""
                import torch

                pipeline.enable_xformers_memory_efficient_attention()
            """,
        ),
        Example(
            "the numbers of GPUs for a model of Ultralytics",
            before="""
                from ultralytics import YOLO  # cuda

                model = YOLO(path)
                model.train(data=data, device=[0, 1])
                model.predict(data, device="0")
            """,
            after="""
                import torch
                from ultralytics import YOLO  # cuda

                model = YOLO(path)
                model.train(data=data, device=[0, 1] if torch.cuda.is_available() else "cpu")
                model.predict(data, device="0" if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "an actor of ray that asks for a GPU",
            before="""
                import ray
                import torch

                @ray.remote(num_gpus=1)
                class Worker:
                    pass

                other = ray.remote(Other).options(num_gpus=0.5).remote()
            """,
        ),
        Example(
            "the options of a function in a dictionary",
            before="""
                import torch, torch_fidelity

                options = {"input1": folder, "cuda": True, "isc": True}
                options["fid"] = True
                scores = torch_fidelity.calculate_metrics(**options)
            """,
            after="""
                import torch, torch_fidelity

                options = {"input1": folder, "cuda": torch.cuda.is_available(), "isc": True}
                options["fid"] = True
                scores = torch_fidelity.calculate_metrics(**options)
            """,
        ),
    )
    VALID = (
        Example(
            "attention for MPS",
            """
                from transformers import AutoModel

                model = AutoModel.from_pretrained(name, attn_implementation="kernels-community/metal-flash-sdpa")
            """,
        ),
        Example(
            "a parameter with the name of an option, which stays in the program",
            """
                import torch
                from enum import Enum

                class Kind(Enum):
                    GPU = 0

                    @classmethod
                    def parse(cls, text):
                        return cls[text.upper()]

                def run(accelerator="gpu"):
                    if accelerator == "gpu":
                        print("a GPU")
                    return Kind.parse(accelerator)
            """,
        ),
        Example(
            "a precision that a CPU has, without CUDA",
            """
                import torch
                from faster_whisper import WhisperModel

                kind = "float16" if torch.cuda.is_available() else "int8"


                def read(path, other="int8"):
                    return WhisperModel(path, compute_type=kind), WhisperModel(path, compute_type=other)


                def choose(path, other="float16"):
                    if place == "cpu":
                        other = "int8"
                    return WhisperModel(path, device=place, compute_type=other)


                read("small")
                if torch.cuda.is_available():
                    read("small", "float16")
                parser.add_argument("--kind", default="float16")
                options = parser.parse_args()
                if options.place == "cpu":
                    options.kind = "int8"
                model = WhisperModel("small", options.place, compute_type=options.kind)
            """,
        ),
        Example(
            "an actor of ray without a GPU, and a number of GPUs of no actor",
            """
                import ray
                import torch

                worker = Worker.options(num_gpus=0).remote()
                ray.init(num_gpus=1)
            """,
        ),
        Example(
            "a flag set by availability",
            """
                import torch
                from library import Config

                Config.cuda = torch.cuda.is_available()
            """,
        ),
        Example(
            "under a guard",
            """
                from library import Config

                if args.cuda:
                    Config.cuda = True
            """,
        ),
        Example(
            "a class of the module",
            """
                class Config:
                    cuda = True


                Config.cuda = True
            """,
        ),
        Example(
            "the profiler of torch",
            """
                import torch

                with torch.autograd.profiler.profile(use_cuda=True) as profile:
                    pass
            """,
        ),
        Example(
            "the automatic choice",
            """
                import pytorch_lightning as pl  # cuda

                trainer = pl.Trainer(accelerator='auto', devices='2')
            """,
        ),
        Example(
            "maps of devices that a CPU accepts",
            """
                import torch
                from transformers import AutoModel

                a = AutoModel.from_pretrained(name, device_map="auto", max_memory={"cpu": "30GB"})
                memory = {index: "10GB" for index in range(torch.cuda.device_count())}
                memory["cpu"] = "30GB"
                infer_auto_device_map(model, max_memory=memory)
                b = AutoModel.from_pretrained(name, device_map={"": "cpu"})
                c = AutoModel.from_pretrained(name, device_map={"": device})
                device_map["lm_head"] = "cpu"
                device_map[layer] = device_map["norm"]
                d = AutoModel.from_pretrained(name, device_map="cuda" if torch.cuda.is_available() else "cpu")
            """,
        ),
        Example(
            "an implementation of attention, if it is installed",
            """
                import torch
                from transformers import AutoModel
                from transformers.utils import is_flash_attn_2_available

                kind = "flash_attention_2" if is_flash_attn_2_available() else "sdpa"
                model = AutoModel.from_pretrained(name, attn_implementation=kind)
                other = {"cuda": "flash_attention_2", "cpu": "sdpa"}[device.type]
                model = AutoModel.from_pretrained(name, attn_implementation=other)
                if other == "flash_attention_2":
                    print("fast")
            """,
        ),
        Example(
            "a number for none, and one that is asked about",
            """
                import functools

                import torch
                from library import Engine

                engine = Engine(device_id=-1)
                make = functools.partial(build, device_id=0)
                other = Engine(device_id=options.where)
                fourth = Engine(device=options.device, device_index=0)
                if options.device_id >= 0 and use_cuda:
                    third = Engine(device_id=options.device_id)
            """,
        ),
        Example(
            "low precision that a CPU has",
            """
                import torch
                from accelerate import Accelerator
                from transformers import TrainingArguments

                accelerator = Accelerator(mixed_precision="bf16")
                options = TrainingArguments("out", bf16=True, use_cpu=True)
                other = TrainingArguments("out", bf16=torch.cuda.is_available())
            """,
        ),
        Example(
            "half precision that is off on a CPU",
            """
                from accelerate import Accelerator  # cuda, torch
                from transformers import TrainingArguments

                accelerator = Accelerator(mixed_precision="fp16")
                options = TrainingArguments("out", fp16=True)
            """,
        ),
        Example(
            "quantizations that run on a CPU",
            """
                from transformers import BitsAndBytesConfig, FineGrainedFP8Config  # cuda, torch

                small = BitsAndBytesConfig(load_in_4bit=True)
                plain = FineGrainedFP8Config(dequantize=True)
            """,
        ),
        Example(
            "the number of devices, and precisions that mean the same on a CPU",
            """
                from lightning import Trainer  # cuda, torch

                trainer = Trainer(accelerator="auto", devices=1, precision="bf16-mixed", strategy="auto")
                other = Trainer(accelerator="cpu", precision="16-mixed", devices=options.devices)
            """,
        ),
        Example(
            "a key of another function's options",
            """
                options = {"cuda": True}
                run(**options)
            """,
        ),
        Example(
            "functions that use a CPU with a warning",
            """
                import easyocr  # cuda, torch
                import stanza

                reader = easyocr.Reader(["en"], gpu=True)
                pipeline = stanza.Pipeline("en", use_gpu=True)
            """,
        ),
        Example(
            "a pipeline that moves its parts to a device",
            """
                import torch

                pipeline.enable_model_cpu_offload(device=device)
            """,
        ),
        Example(
            "the attention of xformers, if it is installed",
            """
                import torch

                if is_xformers_available():
                    pipeline.enable_xformers_memory_efficient_attention()
            """,
        ),
        Example(
            "an option of the program",
            """
                args.cuda = True
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._libraries = CudaLibraries(context)

    def finding(self, node: Any, message: str, fix: Fix | None = None, unless: str = "") -> Finding:
        """Return a finding, which says why it has no fix if it has none."""
        return super().finding(
            node, message, fix, unless or "because the right change depends on the program"
        )

    def visit_Assign(self, node: ast.Assign) -> Iterator[Finding]:
        target = node.targets[0]
        yield from self._check_setting(target_name(target), node.value)
        if not isinstance(target, ast.Attribute) or not is_constant(node.value, True):
            return
        if _FLAG.fullmatch(target.attr) and self._foreign(target.value) and not self._asked(node):
            fix = self.context.replace(node.value, self.devices.available(node, of_cuda=True), _BY_NAME)
            yield self.finding(node, self._message(f"{dotted(target) or target.attr} = True", fix), fix)

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        yield from self._check_method(node)
        name = self.facts.resolve(node.func)
        full_name = name or self._method(node)
        if full_name is None:
            return
        yield from self._check_callee(node, full_name)
        for keyword in node.keywords:
            code = self.context.source.code(keyword.value)
            needs, fix = self._needs(node, full_name, keyword)
            if needs and not self.facts.is_guarded(node):
                yield self.finding(node, f"`{keyword.arg}={code}` {needs}", fix)
            if name is None:
                continue
            if keyword.arg == "accelerator" and _is_of(name, LIGHTNING) and is_constant(keyword.value, *_GPU):
                self.context.mark_handled(keyword.value)
                yield self._trainer(node, keyword.value)
            elif self._is_flag(node, keyword):
                fix = self._switched(name, keyword)
                yield self.finding(node, self._message(f"{keyword.arg}={code}", fix), fix)
            elif self._is_number(node, keyword) and self._foreign(node.func) and not self._asked(node):
                message = f"`{keyword.arg}={code}` may select a GPU by index"
                message += "; without CUDA, pass the library's value for the CPU"
                yield self.finding(node, message, unless="because this value depends on the library")

    def _is_flag(self, call: ast.Call, keyword: ast.keyword) -> bool:
        """Return whether an argument makes a function of a library use CUDA, which fails without it."""
        flag = _FLAG.fullmatch(keyword.arg or "") and is_constant(keyword.value, True)
        is_foreign = flag and self.facts.resolve(call.func) not in COPING and self._foreign(call.func)
        return bool(is_foreign) and not self._asked(call)

    def _switched(self, name: str, keyword: ast.keyword) -> Fix:
        """Return the fix of an argument that selects the GPU if it is true, and else the CPU."""
        value = keyword.value
        why = "" if (name, keyword.arg) in SWITCHES else _BY_NAME
        return self.context.replace(value, self.devices.available(value, of_cuda=True), why)

    def _method(self, call: ast.Call) -> str | None:
        """Return the full name of a method of an object that a library's class makes, if that may matter."""
        function = call.func
        if not call.keywords and last_name(function) not in _CALLED:
            return None
        made = self.facts.value(function.value) if isinstance(function, ast.Attribute) else None
        owner = self.facts.resolve(made.func) if isinstance(made, ast.Call) else None
        return f"{owner}.{last_name(function)}" if owner else None

    def visit_keyword(self, node: ast.keyword) -> Iterator[Finding]:
        call = self.facts.tree.parents[node]
        name = node.arg or ""
        if name == "default" and isinstance(call, ast.Call):
            name = next(iter(declared_names(self.facts, call)), "")
        if node.arg == "num_gpus" and self._requests(call, node.value):
            advice = (
                "makes Ray wait forever if no machine in the cluster has a GPU; request no GPU in that case"
            )
            yield self.finding(node.value, f"`num_gpus={self.context.source.code(node.value)}` {advice}")
        yield from self._check_setting(name, node.value)

    def _requests(self, call: ast.AST, number: ast.expr) -> bool:
        """Return whether an actor or task of ray requests GPUs: https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html."""
        is_request = isinstance(call, ast.Call) and last_name(call.func) in ("options", "remote")
        is_request = is_request and _RAY.search(self.context.source.text) is not None
        is_request = is_request and isinstance(number, ast.Constant) and bool(number.value)
        return is_request and not self.facts.is_guarded(number)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Iterator[Finding]:
        if node.value is not None:
            yield from self._check_setting(last_name(node.target), node.value)

    def visit_Dict(self, node: ast.Dict) -> Iterator[Finding]:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield from self._check_setting(str(key.value), value)
                yield from self._check_options(node, ast.keyword(str(key.value), value))

    def _check_options(self, options: ast.Dict, keyword: ast.keyword) -> Iterator[Finding]:
        """Check a key of a dictionary that a call gets as `**options`."""
        if not _FLAG.fullmatch(keyword.arg or ""):
            return
        parents = self.facts.tree.parents
        for use in self.context.forwards.of(options).uses:
            call = parents.get(parents[use])
            if isinstance(parents[use], ast.keyword) and isinstance(call, ast.Call):
                name = self.facts.resolve(call.func)
                if name is not None and self._is_flag(call, keyword):
                    fix = self._switched(name, keyword)
                    yield self.finding(keyword.value, self._message(f'"{keyword.arg}": True', fix), fix)
                    return

    def visit_arguments(self, node: ast.arguments) -> Iterator[Finding]:
        for parameter, default in with_defaults(node):
            if default is not None and not (parameter.arg == "accelerator" and self._stays(node)):
                yield from self._check_setting(parameter.arg, default)

    def _stays(self, node: ast.arguments) -> bool:
        """Return whether an accelerator is only compared, or passed to functions of the program by place."""
        tree, functions = self.facts.tree, self.context.forwards.functions
        inside = {*ast.walk(tree.parents[node])}
        uses: list[Any] = [tree.parents[each] for each in tree.reads("accelerator") if each in inside]
        return all(isinstance(use, ast.Compare) or any(functions(getattr(use, "func", use))) for use in uses)

    def _check_setting(self, name: str, value: ast.expr) -> Iterator[Finding]:
        """Check the value of a setting whose name is unique to transformers, accelerate or Lightning."""
        for node, leaf in self._leaves(name, value) if name.endswith(_SETTINGS) else ():
            advice, fix = "", None
            if name == "device_map" and self._maps_to_cuda(leaf):
                fix = self._on_cpu(node, leaf)
                advice = _MAY_LOAD if _UNSEEN in fix.why else _LOADS
            elif name == "accelerator" and is_constant(leaf, *_GPU):
                what = "a GPU" if is_constant(leaf, "gpu") else "CUDA"
                advice = f'may need {what}; in Lightning, use "auto"'
            elif name == "max_memory" and self._names_gpus(leaf):
                advice = 'refers to GPUs by index; without CUDA, use only the key "cpu"'
            known = {node, leaf} & self.context.handled  # two settings may be of one variable
            if advice and not known and not self.facts.is_guarded(leaf):
                self.context.mark_handled(node, leaf)
                code = self.context.source.code(leaf)
                setting = f"{name}={code}" if "\n" not in code else name
                yield self.finding(node, f"`{setting}` {advice}", fix)

    def _names_gpus(self, memory: ast.expr) -> bool:
        """Return whether the memory of devices is that of GPUs alone, or with numbers that a CPU does not have."""
        match memory:
            case ast.Dict(keys=keys):
                return any(key is not None and integer(key) for key in keys)
            case ast.DictComp(key=ast.Name(), generators=[ast.comprehension(iter=ast.Call(func=each))]):
                return dotted(each) in ("range", "enumerate") and not self.context.source.holds(_ADDS_CPU)
        return False

    def _on_cpu(self, node: ast.expr, leaf: ast.expr) -> Fix:
        """Return the fix of a device map that loads onto the CPU without CUDA.

        Args:
            node: the value of the setting.
            leaf: what it is, if it is a variable.
        """
        target = leaf if isinstance(leaf, ast.Dict) or cuda_string(leaf) else node
        why = "" if Use.DEVICE in self.context.forwards.use_of(target) else _UNSEEN
        if isinstance(target, ast.Dict) and len(target.values) > 1:
            return self.context.when_cuda(target, '{"": "cpu"}', why)
        if isinstance(target, ast.Dict):
            return self.context.when_cuda(target.values[0], '"cpu"', why)
        passed = getattr(self.facts.tree.parents[target], "arg", "") == "device_map" and not why
        named = name_fix(self.context, target) if passed else None
        return named or self.context.when_cuda(target, '"cpu"', why)

    def visit_Constant(self, node: ast.Constant) -> Iterator[Finding]:
        """Check a text that names an implementation of attention."""
        if not isinstance(node.value, str) or not node.value.startswith(ATTENTIONS):
            return
        if (
            "/metal-" in node.value
            or only_with_cuda(self.facts, node)
            or self._libraries.copes(node, "flash")
        ):
            return
        holders = [*names_of_holders(self.facts, node)]
        holders += [variable.name for variable in self.context.forwards.of(node).variables]
        taken = Use.ATTENTION in self.context.forwards.use_of(node)
        taken = taken or any(map(self.context.project.is_setting, shared_names(self.facts, node)))
        named = [name for name in holders if name.endswith(_ATTENTION)]
        if taken or named:
            setting = f"{named[0] if named else _ATTENTION}={self.context.source.code(node)}"
            needs = "needs" if taken else "may need"
            message = f'`{setting}` {needs} CUDA; without CUDA, use "sdpa"'
            fix = self.context.chosen_with_cuda(node) if taken else None
            fix = fix or self.context.when_cuda(node, '"sdpa"', "" if taken else _UNSEEN)
            yield self.finding(node, message, fix)

    def _leaves(self, name: str, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield the expressions that may be the value of a setting: each, and what a variable is bound to."""
        todo = [value]
        while todo:
            match part := todo.pop():
                case ast.IfExp(body=body, orelse=orelse):
                    todo += (orelse, body)
                case ast.BoolOp(values=values):
                    todo += reversed(values)
                case ast.Name(id=variable) if variable != name and (bound := self._bound(part)):
                    yield from ((part if len(bound) == 1 else each, each) for each in bound)
                case _:
                    yield part, part

    def _bound(self, variable: ast.Name) -> list[ast.expr]:
        """Return what a variable may be bound to where it is read, nothing if that is not known."""
        bindings = reaching(self.facts.tree, variable, self.facts.bindings(variable))
        values = [each.value for each in bindings[:BINDINGS] if each.value is not None]
        return values if len(values) == len(bindings) else []

    def _maps_to_cuda(self, value: ast.expr) -> bool:
        """Return whether a device map, or a device for everything, is of CUDA: by itself, or by a number."""
        if isinstance(value, ast.Dict):
            return any(map(self._maps_to_cuda, value.values))
        if last_name(value) in _PROCESS or cuda_string(value):
            return True
        # Other rules check what `torch.` makes, and the variables that hold a device.
        called = isinstance(value, ast.Call) and (self.facts.resolve(value.func) or "").startswith("torch.")
        is_fixed = called or is_fixed_where_bound(self.context, value)
        return not is_fixed and self.facts.kinds.of(value).are(NUMBERS)

    def _check_method(self, node: ast.Call) -> Iterator[Finding]:
        """Check a call of a method that is unique to diffusers."""
        method = last_name(node.func)
        if method not in _OF_DIFFUSERS or self.facts.is_guarded(node):
            return
        passed = [*node.args, *(each.value for each in node.keywords if each.arg != "gpu_id")]
        if method == XFORMERS:
            if not self._libraries.copes(node, "xformers"):
                message = f"`{method}` needs xformers and CUDA; call it only if CUDA is available"
                yield self.finding(node, message)
        elif method == ATTENTION_BACKEND:
            backend = str(passed[0].value) if passed and isinstance(passed[0], ast.Constant) else ""
            if backend.startswith(ATTENTION_BACKENDS):
                yield self.finding(node, f'`{method}("{backend}")` needs CUDA; without CUDA, use "native"')
        elif all(map(integer, passed)):
            yield self.finding(node, f"`{method}` needs an accelerator; call it only if one is available")

    def _check_callee(self, node: ast.Call, name: str) -> Iterator[Finding]:
        """Check a call of what needs CUDA whatever its arguments are."""
        library, last = name.partition(".")[0], name.rpartition(".")[2]
        fact = CALLS.get((library, last))
        if fact is None or self.facts.is_guarded(node):
            return
        if not any(each.arg == fact.unless for each in node.keywords):
            yield self.finding(node, f"`{last}` from {library} needs a GPU; use it only if CUDA is available")

    def _needs(self, call: ast.Call, name: str, keyword: ast.keyword) -> tuple[str, Fix | None]:
        """Return what is wrong with an argument of a known library that needs CUDA, with the fix if there is one."""
        option, value = keyword.arg, keyword.value
        if option in ("gpus", "devices") and _is_of(name, LIGHTNING):
            if option == "gpus" and not (isinstance(value, ast.Constant) and value.value in (0, None)):
                if isinstance(value, (ast.Constant, ast.List, ast.UnaryOp)):
                    return 'needs CUDA and Lightning 1; pass `accelerator="auto"` instead', None
            if option == "devices" and _length(value) is not None and self._is_automatic(call):
                return (
                    'fails on a CPU, where Lightning needs a positive number or `"auto"`; without CUDA, use `1`',
                    None,
                )
        for fact in _ARGUMENTS.get(option or "", ()):
            is_off = any(each.arg in fact.unless and _selects_cpu(each) for each in call.keywords)
            if is_off or not _is_of(name, (fact.libraries, fact.ends)):
                continue
            if _takes(fact, value):
                return fact.message, self._instead(value, fact.otherwise)
            sources = Sources(self.facts, _FOLLOWED, _STEPS, only_cuda=False).of(value)
            taken = next((source.node for source in sources if _takes(fact, source.node)), None)
            if taken is not None:
                return f"may be {self.context.source.code(taken)}, which {fact.message}", None
        return "", None

    def _instead(self, value: ast.expr, otherwise: str) -> Fix | None:
        """Return the fix of an argument that has another value without CUDA, None if that is not known."""
        if otherwise == "False":
            return self.context.replace(value, self.devices.available(value, of_cuda=True))
        return self.context.when_cuda(value, otherwise, of_cuda=True) if otherwise else None

    def _is_automatic(self, call: ast.Call) -> bool:
        """Return whether a trainer selects a CPU where there is no GPU."""
        given = [each.value for each in call.keywords if each.arg == "accelerator"]
        return all(is_constant(each, None, "auto") for each in given)

    def _trainer(self, call: ast.Call, accelerator: ast.expr) -> Finding:
        """Return the finding of a trainer of Lightning on GPUs. A CPU takes only the number of devices."""
        code = self.context.source.code
        any_gpu = is_constant(accelerator, "gpu")
        only_cuda = self.context.accelerator is None and not any_gpu
        otherwise = '"cpu"' if only_cuda else '"auto"'  # MPS is a "gpu", too
        fix = self.context.when_cuda(accelerator, otherwise, of_cuda=True)
        what = "a GPU" if any_gpu else "CUDA"
        message = f"`accelerator={code(accelerator)}` needs {what}; without CUDA, use {otherwise}"
        devices = next((keyword.value for keyword in call.keywords if keyword.arg == "devices"), None)
        if devices is None or (isinstance(devices, ast.Constant) and _length(devices) is None):
            return self.finding(call, message, fix)
        number = _length(devices)
        other = self.context.when_cuda(devices, str(number or 1), of_cuda=True)
        both = replace(fix, edits=(*fix.edits, *other.edits), needs=fix.needs | other.needs)
        message += f" and `devices={number or 1}`"
        finding = self.finding(call, message, both)
        return finding if number else finding.unsafe("without CUDA, the fixed program uses a single process")

    def _message(self, setting: str, fix: Fix) -> str:
        makes = "may make" if _BY_NAME in fix.why else "makes"
        return f"`{setting}` {makes} the library use CUDA; set it to `torch.cuda.is_available()`"

    def _is_number(self, call: ast.Call, keyword: ast.keyword) -> bool:
        """Return whether a keyword is the number of a GPU, such as `device_id=0` or `gpu_id=options.gpu_id`.

        Beside `device=`, it is the number of one of that kind.
        """
        if not _NUMBER.fullmatch(keyword.arg or "") or any(each.arg == "device" for each in call.keywords):
            return False
        number = literal_index(keyword.value)
        return number is not None or bool(_NUMBER.fullmatch(last_name(keyword.value)))

    def _foreign(self, node: ast.expr) -> bool:
        """Return whether an object comes from a library: an import, or the result of calling one."""
        name = self.facts.resolve(node)
        if name is None:
            value = self.facts.value(node)
            if not isinstance(value, ast.Call):
                return False
            name = self.facts.resolve(value.func)
        parts = (name or "").split(".")
        if parts[0] in ("", "torch", "easydict", *sys.stdlib_module_names):
            return False
        found = self.context.project.has_module
        return not any(found(self.devices.path, ".".join(parts[:end])) for end in range(1, len(parts) + 1))

    def _asked(self, node: ast.AST) -> bool:
        """Return whether an earlier check asks the user or the machine for CUDA."""
        tests = (self.context.source.code(test) for test, _ in conditions_around(self.facts.tree, node))
        return self.facts.is_guarded(node) or any(map(_ASKED.search, tests))


def _is_of(name: str, callee: tuple[tuple[str, ...], tuple[str, ...]]) -> bool:
    """Return whether a full name begins with one of some libraries, and ends with one of some names."""
    libraries, ends = callee
    return name.startswith(tuple(f"{library}." for library in libraries)) and name.endswith(ends)


def _takes(fact: Argument, value: ast.expr) -> bool:
    """Return whether a value is one of those of a fact."""
    match value:
        case ast.Constant(value=given):
            pass
        case ast.List(elts=[ast.Constant(value=int(first)), *_]):
            given = str(first)
        case _:
            return False
    return any(type(given) is type(each) and fnmatchcase(str(given), str(each)) for each in fact.values)


def _selects_cpu(keyword: ast.keyword) -> bool:
    """Return whether an argument that may select the CPU does so."""
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    return value == "cpu" if keyword.arg == "accelerator" else value is not False
