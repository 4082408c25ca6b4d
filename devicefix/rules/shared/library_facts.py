"""List what libraries other than torch do on a machine without CUDA, and what to do about it.

`benchmarks/libraries.py` runs what can be run on a CPU, and prints the outcomes next to these.
"""

from __future__ import annotations

from typing import NamedTuple

# What happens on a CPU.
BUILD = "can't be installed"  # there is neither a wheel nor a build without CUDA
IMPORT = "import fails"
CALL = "call fails"
OTHER = "computes something else"
RUNS = "runs"

_SDPA = "use `torch.nn.functional.scaled_dot_product_attention`, which works on any device"
_SDPA_TRANSPOSED = f"{_SDPA}, and transpose the sequence and head dimensions"
_AMP = "use `torch.autocast` and `torch.amp.GradScaler`, which turn themselves off on a CPU"
_APEX_PART = "it is a compiled part of apex; import it only if CUDA is available"
_DRIVER = "it queries the NVIDIA driver; use it only if CUDA is available"
_NO_COUNTERPART = "it has no CPU counterpart; import it only if CUDA is available"
_TORCH_PATH = "add a CPU path with torch operators"
_PLAIN_PATH = "add a CPU path in plain torch"
_TORCH_MODEL = "add a CPU path that runs the torch model"
_NN = "without CUDA, use the layers of `torch.nn`"
_DEFORM = "use `torchvision.ops.deform_conv2d`, which works on any device"
_DEFORM_NEWER = "use `torchvision.ops.deform_conv2d`, or add a CPU path with torch operators"


class Library(NamedTuple):
    """A library that needs CUDA.

    Attributes:
        outcome: what happens on a CPU.
        advice: what to do, as the end of a message.
        tried: the version that was tried, if it was.
    """

    outcome: str
    advice: str
    tried: str = ""


# By module, or by what is imported from one.
LIBRARIES = {
    "apex": Library(BUILD, "use torch, which now has most of apex's features, or import apex only if CUDA is available"),
    "apex.amp": Library(BUILD, _AMP),
    "apex.fp16_utils": Library(BUILD, _AMP),
    "apex.parallel": Library(
        BUILD, "use `torch.nn.parallel.DistributedDataParallel` and `torch.nn.SyncBatchNorm`"
    ),
    "apex.parallel.convert_syncbn_model": Library(
        BUILD, "use `torch.nn.SyncBatchNorm.convert_sync_batchnorm`"
    ),
    "apex.parallel.LARC": Library(BUILD, "torch has no counterpart; use an implementation in plain torch"),
    "apex.optimizers": Library(BUILD, "use the same optimizer from `torch.optim`, with `fused=True` on a GPU"),
    "apex.optimizers.FusedAdam": Library(
        BUILD, "use `torch.optim.AdamW` and pass `weight_decay` (0 by default in apex), or `Adam` for `adam_w_mode=False`"
    ),
    "apex.optimizers.FusedLAMB": Library(BUILD, "torch has no LAMB; use an implementation in plain torch"),
    "apex.optimizers.FusedNovoGrad": Library(BUILD, "torch has no NovoGrad; use an implementation in plain torch"),
    "apex.optimizers.FusedSGD": Library(BUILD, "use `torch.optim.SGD`, with `fused=True` on a GPU"),
    "apex.normalization": Library(BUILD, "use `torch.nn.LayerNorm` or `torch.nn.RMSNorm`"),
    "apex.normalization.FusedLayerNorm": Library(BUILD, "use `torch.nn.LayerNorm`, which has the same parameters"),
    "apex.normalization.FusedRMSNorm": Library(
        BUILD, "use `torch.nn.RMSNorm` with `eps=1e-5`, which has the same parameters"
    ),
    "apex.multi_tensor_apply": Library(BUILD, "use the `foreach` optimizers and `torch.nn.utils.clip_grad_norm_`"),
    "amp_C": Library(
        BUILD, "it is a compiled part of apex; use the `foreach` and `fused` optimizers of `torch.optim`"
    ),
    "apex_C": Library(BUILD, _APEX_PART),
    "pycuda": Library(BUILD, "use torch operators, or add a CPU path"),
    "cupy": Library(CALL, "use NumPy or torch operators, or import it only if CUDA is available"),
    "cupyx": Library(CALL, "use SciPy or torch operators, or import it only if CUDA is available"),
    "cudf": Library(IMPORT, "without CUDA, use pandas"),
    "cuml": Library(IMPORT, "without CUDA, use scikit-learn"),
    "cugraph": Library(IMPORT, "without CUDA, use NetworkX"),
    "tensorrt": Library(CALL, "add a CPU path that runs the torch or ONNX model"),
    "torch_tensorrt": Library(IMPORT, _TORCH_MODEL),
    "tensorrt_llm": Library(IMPORT, _TORCH_MODEL),
    "torch2trt": Library(IMPORT, _TORCH_MODEL),
    "pynvml": Library(CALL, _DRIVER, "13.615.71"),
    "py3nvml": Library(CALL, _DRIVER),
    "nvidia_smi": Library(CALL, _DRIVER),
    "numba.cuda": Library(CALL, "add a CPU path with torch operators or `numba.njit`", "0.68.1"),
    "nvidia.dali": Library(CALL, "without CUDA, use `torch.utils.data.DataLoader` and torchvision transforms"),
    "flash_attn": Library(BUILD, _SDPA),
    "flash_attn.flash_attn_func": Library(BUILD, _SDPA_TRANSPOSED),
    "flash_attn.flash_attn_varlen_func": Library(BUILD, f"{_SDPA}, and call it on each sequence separately"),
    "flash_attn.bert_padding": Library(BUILD, "use a padding mask in plain torch"),
    "flash_attn_interface": Library(BUILD, _SDPA),
    "flashinfer": Library(CALL, _SDPA, "0.7.2.post1"),
    "sageattention": Library(CALL, _SDPA, "1.0.6"),
    "ring_flash_attn": Library(IMPORT, f"it needs flash-attn; {_SDPA}"),
    "xformers": Library(CALL, _SDPA),
    "xformers.ops.memory_efficient_attention": Library(CALL, _SDPA_TRANSPOSED),
    "flash_mla": Library(BUILD, _TORCH_PATH),
    "triton": Library(CALL, _TORCH_PATH, "3.9.0"),
    "fla": Library(CALL, "its kernels need Triton; add a CPU path with torch operators", "0.6.0"),
    "liger_kernel": Library(CALL, f"its kernels need Triton; {_NN}", "0.8.5"),
    "kernels.get_kernel": Library(
        CALL, "most kernels of the Hub are only built for CUDA; load it only if CUDA is available"
    ),
    "tilelang": Library(CALL, _TORCH_PATH),
    "quack": Library(IMPORT, "its kernels need CUTLASS, which needs CUDA; add a CPU path with torch operators", "0.6.5"),
    "cutlass": Library(CALL, "without CUDA, use `torch.matmul`"),
    "transformer_engine": Library(IMPORT, _NN),
    "mamba_ssm": Library(BUILD, _PLAIN_PATH),
    "accelerated_scan.warp": Library(
        IMPORT, "it compiles CUDA code when it is imported; without CUDA, use `accelerated_scan.ref`"
    ),
    "causal_conv1d": Library(BUILD, "use `torch.nn.functional.conv1d` with left padding"),
    "tinycudann": Library(BUILD, "add a CPU path with torch layers"),
    "nvdiffrast": Library(BUILD, _NO_COUNTERPART),
    "diff_gaussian_rasterization": Library(BUILD, _NO_COUNTERPART),
    "diff_surfel_rasterization": Library(BUILD, _NO_COUNTERPART),
    "diffoctreerast": Library(BUILD, _NO_COUNTERPART),
    "diso": Library(BUILD, "without CUDA, extract the surface with `skimage.measure.marching_cubes`"),
    "vox2seq": Library(BUILD, _PLAIN_PATH),
    "simple_knn": Library(BUILD, "add a CPU path that searches for neighbors with torch operators"),
    "gsplat": Library(CALL, "import it only if CUDA is available, because its rasterizer is compiled for CUDA", "1.5.3"),
    "nerfacc": Library(CALL, _PLAIN_PATH, "0.5.3"),
    "cubvh": Library(BUILD, _PLAIN_PATH),
    "fused_ssim": Library(BUILD, _PLAIN_PATH),
    "pointnet2_ops": Library(BUILD, _PLAIN_PATH),
    "MultiScaleDeformableAttention": Library(
        BUILD, "it has no CPU kernels; without CUDA, use `torch.nn.functional.grid_sample`"
    ),
    "spconv": Library(
        CALL, "its CPU version does not support gradients; without CUDA, train with another library", "2.3.8"
    ),
    "torchsparse": Library(CALL, "check whether the installed build supports a CPU"),
    "dcn_v2": Library(BUILD, _DEFORM),
    "DCNv2": Library(BUILD, _DEFORM),
    "DCNv3": Library(BUILD, _DEFORM_NEWER),
    "DCNv4": Library(BUILD, _DEFORM_NEWER),
    "lightseq": Library(BUILD, _NN),
    "q8_kernels": Library(BUILD, "without CUDA, use the weights in bfloat16"),
    "trifast": Library(CALL, "its kernels need Triton; add a CPU path with torch operators"),
    "deep_gemm": Library(BUILD, "without CUDA, use `torch.matmul`"),
    "deep_ep": Library(BUILD, "without CUDA, use the collectives of `torch.distributed`"),
    "grouped_gemm": Library(BUILD, "without CUDA, use one `torch.matmul` for each group"),
    "megablocks": Library(BUILD, "without CUDA, use the layers of `torch.nn` for each expert"),
    "fast_hadamard_transform": Library(
        BUILD, "without CUDA, multiply by a Hadamard matrix with torch operators"
    ),
    "torch_int": Library(BUILD, "add a CPU path in floating point"),
    "awq_inference_engine": Library(BUILD, _PLAIN_PATH),
    "exllamav2": Library(IMPORT, "it runs only on a GPU; without CUDA, load the model with another library", "0.3.2"),
    "unsloth": Library(IMPORT, "importing it needs a GPU; without CUDA, use transformers and peft", "2026.10.9"),
    "adam_atan2": Library(BUILD, "use an implementation in plain torch"),
}  # fmt: skip
# Functions that fail on a CPU, of libraries that can be installed without CUDA: whether such a library can be imported
# says nothing about CUDA.
FAILING = {
    "xformers": (
        "memory_efficient_attention", "memory_efficient_attention_forward", "memory_efficient_attention_partial",
        "memory_efficient_attention_forward_requires_grad", "memory_efficient_attention_backward",
        "index_select_cat", "scaled_index_add",
    ),
}  # fmt: skip


class Argument(NamedTuple):
    """An argument of a library's function or class that a CPU can't take.

    Attributes:
        libraries: the first parts of the full name of what is called.
        ends: how that name ends.
        option: the name of the argument.
        values: the values that need CUDA; a value that ends in `*` is the beginning of some.
        outcome: what happens on a CPU.
        message: what is wrong, and what to do.
        tried: the version that was tried, if it was.
        unless: arguments that may select the CPU.
    """

    libraries: tuple[str, ...]
    ends: tuple[str, ...]
    option: str
    values: tuple[object, ...]
    outcome: str
    message: str
    tried: str = ""
    unless: tuple[str, ...] = ()


_TRANSFORMERS = ("transformers", "trl"), ("TrainingArguments", "Config")
LIGHTNING = ("lightning", "pytorch_lightning"), ("Trainer", "Fabric")
_OFF = ("use_cpu", "no_cuda")
ARGUMENTS = (
    Argument(
        *_TRANSFORMERS, "bf16", (True,), CALL, "needs CUDA; use `bf16=torch.cuda.is_available()`", "5.23.0", _OFF
    ),
    Argument(
        *_TRANSFORMERS, "bf16_full_eval", (True,), CALL,
        "needs CUDA; use `bf16_full_eval=torch.cuda.is_available()`", "5.23.0", _OFF,
    ),
    Argument(*_TRANSFORMERS, "tf32", (True,), CALL, "needs CUDA; use `tf32=torch.cuda.is_available()`", "5.23.0"),
    Argument(
        *_TRANSFORMERS, "use_liger_kernel", (True,), CALL,
        "needs CUDA; use `use_liger_kernel=torch.cuda.is_available()`", "5.23.0",
    ),
    Argument(
        *LIGHTNING, "precision", (16, "16", "16-mixed"), OTHER,
        'computes in bfloat16 on a CPU; without CUDA, use "32-true"', "2.6.6", ("accelerator",),
    ),
    Argument(
        *LIGHTNING, "precision", ("transformer-engine*",), CALL,
        'needs Transformer Engine, which needs CUDA; without CUDA, use "32-true"', "2.6.6", ("accelerator",),
    ),
    Argument(
        *LIGHTNING, "strategy", ("fsdp*", "deepspeed*"), CALL, 'needs a GPU in Lightning; without a GPU, use "auto"', "2.6.6",
        ("accelerator",),
    ),
    # https://opennmt.net/CTranslate2/quantization.html
    Argument(
        ("ctranslate2", "faster_whisper", "whisperx"), ("",), "compute_type", ("float16", "int8_float16", "bfloat16", "int8_bfloat16"), CALL,
        'is supported by CTranslate2 only on a GPU; without a GPU, use "default"', "4.8.5",
    ),
    Argument(
        ("ultralytics",), ("train", "predict", "val", "track", "tune"), "device", ("0*", "1*", "2*", "3*"), CALL,
        'selects GPUs by index; without CUDA, use "cpu"', "8.4.190",
    ),
    Argument(
        ("optimum",), ("from_pretrained",), "provider", ("CUDAExecutionProvider", "TensorrtExecutionProvider"), CALL,
        'needs CUDA in optimum; without CUDA, use "CPUExecutionProvider"',
    ),
)  # fmt: skip


class Call(NamedTuple):
    """A function or class of a library that raises an error without CUDA.

    Attributes:
        tried: the version that was tried, if it was.
        unless: an argument with which it runs.
    """

    tried: str = ""
    unless: str = ""


# By library and name: some have other modules for the same class.
CALLS = {
    ("diffusers", "BitsAndBytesConfig"): Call("0.42.1"),  # that of transformers runs
    ("transformers", "FineGrainedFP8Config"): Call("5.23.0", "dequantize"),
    ("transformers", "FbgemmFp8Config"): Call(),
    ("transformers", "EetqConfig"): Call(),
    ("transformers", "HiggsConfig"): Call(),
    ("transformers", "SpQRConfig"): Call(),
    ("transformers", "VptqConfig"): Call(),
    ("torchao", "Float8DynamicActivationFloat8WeightConfig"): Call("0.18.0"),
    ("torchao", "Int4WeightOnlyConfig"): Call("0.18.0", "int4_packing_format"),
    ("torchao", "CPUOffloadOptimizer"): Call("0.18.0"),
    ("torchdata", "PinMemory"): Call("0.11.0"),  # a `DataLoader` that pins memory runs
    ("vllm", "PyNcclCommunicator"): Call(),
}
# Functions that run on a CPU although an argument asks for a GPU: they print a warning.
COPING = {
    "easyocr.Reader": "1.7.2",
    "stanza.Pipeline": "1.15.0",
}


# Arguments that are documented to select the GPU if they are true, and the CPU if they are false: by the full name of
# the function or class, and the argument, each with the version that was tried.
SWITCHES = {
    # https://torch-fidelity.readthedocs.io/en/latest/api.html
    ("torch_fidelity.calculate_metrics", "cuda"): "0.4.0",
    ("torch_fidelity.GenerativeModelModuleWrapper", "cuda"): "0.4.0",
}

# Methods of diffusers that raise an error without CUDA, unless a device is passed.
# https://huggingface.co/docs/diffusers/optimization/memory
OFFLOADS = ("enable_model_cpu_offload", "enable_sequential_cpu_offload")
XFORMERS = "enable_xformers_memory_efficient_attention"
ATTENTION_BACKEND = "set_attention_backend"
ATTENTION_BACKENDS = (
    "flash",
    "_flash",
    "sage",
    "_sage",
    "aiter",
    "xformers",
    "_native_cudnn",
)  # they begin so
# https://huggingface.co/docs/transformers/attention_interface
ATTENTIONS = ("flash_attention_", "kernels-community/", "paged|flash_attention_")  # they begin so
