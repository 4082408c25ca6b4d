"""The prefilter: which files, and which lines of them, can hold a tie to CUDA.

Both questions are asked before anything is parsed or walked. Here are the words for which any file is parsed;
those of the rules, which decide about lines, are arguments.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

from devicefix.facts.moved_numbers import moves_to_number

# -- files ---------------------------------------------------------------------------------------------

_IN_FILES = (
    b"pin_memory", b"nvtx", b"DistributedDataParallel", b"CUDAExtension", b"get_device(", b"SyncBatchNorm",
    b".device.index",
)  # fmt: skip
# The parts of a file, without texts in triple quotation marks, as docstrings: comments, whose quotes begin
# no string, strings, and the rest. A prefix with `f` or `t` makes a string that holds code, and the program
# may parse a text behind a bracket or an equals sign. Quotes inside of f-strings, as Python 3.12 allows them,
# come in pairs on a line.
_TEXT = rb"""
    \"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"{3}
    |\'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'{3}
    """
_PARTS = re.compile(
    rb"""
    (?<![fFtT])(?<![fFtT][rR])(?<![(=])(?<!=[ ])(?:%b)
    |(\#[^\n]*
    |%b
    |\"[^"\\\n]*(?:\\.[^"\\\n]*)*"
    |\'[^'\\\n]*(?:\\.[^'\\\n]*)*'
    |[^\#"']+
    |["'])
    """
    % (_TEXT, _TEXT),
    re.DOTALL | re.VERBOSE,
)
# Libraries that need CUDA: a file that imports one matters, also without torch.
_NEED_CUDA = tuple(
    b"""
    accelerated_scan adam_atan2 amp_C apex apex_C awq_inference_engine causal_conv1d cubvh cudf cugraph
    cuml cupy cupyx cutlass dcn_v2 DCNv2 DCNv3 DCNv4 deep_ep deep_gemm diff_gaussian_rasterization
    diff_surfel_rasterization diffoctreerast diso exllamav2 fast_hadamard_transform fla flash_attn
    flash_attn_interface flash_mla flashinfer fused_ssim grouped_gemm gsplat kernels liger_kernel lightseq
    mamba_ssm megablocks MultiScaleDeformableAttention nerfacc numba nvdiffrast nvidia nvidia_smi
    pointnet2_ops py3nvml pycuda pynvml pynvrtc q8_kernels quack ring_flash_attn sageattention simple_knn
    spconv tensorrt tensorrt_llm tilelang tinycudann torch2trt torch_int torch_tensorrt torchsparse
    transformer_engine trifast triton unsloth vox2seq xformers
    """.split()
)
# Libraries that bring torch with them: a file that uses one of them need not name torch.
_WITH_TORCH = tuple(
    b"""
    accelerate allennlp auto_gptq awq axolotl bitsandbytes botorch catalyst clip colbert colossalai
    composer ctranslate2 deepspeed demucs detectron2 dgl diffusers e3nn easyocr espnet espnet2 fairscale
    fairseq fairseq2 fastai faster_whisper FlagEmbedding flair gptqmodel gpytorch haystack ignite kornia
    langchain_huggingface lightning lightning_fabric llamafactory lmdeploy megatron mmcv mmdet mmengine
    mmpretrain mmseg monai nemo open_clip optimum peft pyannote pyro sam2 segment_anything
    sentence_transformers setfit sglang simpletransformers speechbrain stable_baselines3 stanza swift
    tianshou timm transformers trl TTS ultralytics verl vllm whisper whisperx
    """.split()
)
# A file without torch may pass the number of a GPU to a class of the project.
_NUMBER = re.compile(rb"device(?<=\bdevice)[ \t]*=[ \t]*\d+[ \t]*[,)\n]")
_LIBRARIES = _WITH_TORCH + _NEED_CUDA
# All other bytes become spaces: to split the rest takes half as long as a search for names.
_IN_NAMES = bytes(
    each if each >= 0x80 or chr(each).isalnum() or each == ord("_") else 0x20 for each in range(256)
)
_IMPORTED = re.compile(rb"import(?<![\w.] import)[ \t]+([\w., \t]+)")  # not `from x import y`
_IMPORTED_FROM = re.compile(rb"from[ \t]+(\w+)")
_QUOTED = re.compile(rb"[\"']([A-Za-z]\w+)")  # `import_module("triton")`, `BACKEND = "flash_attn"`
# A pattern begins with a letter, and looks back for `\b`: then the search is several times as fast.
_LOAD = re.compile(rb"load\s*\(")
_OF = re.compile(rb"\b(\w+)\s*\.\s*\Z")
_FLASH = re.compile(rb"[\"'](?<![=!]=[ (][\"'])flash_attention_")  # a comparison chooses no kernel
_BUFFER = re.compile(rb"register_buffer\s*\([^=]{0,300}?Parameter\(")
_ACCELERATOR = re.compile(rb"\.accelerator\.(?<!\bself\.accelerator\.)")  # of torch, by whatever name
_FAR = 80  # bytes from the beginning of a name to the end of the dot behind it
_LOAD_IMPORTED = re.compile(
    rb"torch(?<=\btorch)\b[^\n]{0,200}\bimport\b(?:\s*\([^)]{0,2000}|[^\n]{0,1000})\bload"
)
_LOADERS = {b"torch", b"jit", b"hub"}
# A copy that only a GPU makes, which is kept or changed in place, and code that changes tensors in place.
_KEPT = re.compile(rb"\.cpu\(\)(?:\.\w+_\(|[^\n.]*\bfor\b|[ \t]*\r?\n)")
_STATE = re.compile(rb"\.cpu\(\)[^\n]*\b(?:state_dict|parameters|buffers)\(")
_IN_PLACE = re.compile(rb"\.\w+_\(|\.step\(")


def may_matter(data: bytes) -> bool:
    """Return whether the code in a file's bytes holds a word that every run looks for."""
    return _holds(data) and _holds(code_of(data))


@lru_cache(maxsize=1)  # several questions are asked about one file
def code_of(data: bytes) -> bytes:
    """Return the bytes of a file without texts in triple quotation marks, such as docstrings."""
    return b"".join(_PARTS.findall(data))


@lru_cache(maxsize=2)  # the engine and the exports both ask, one after the other
def _holds(data: bytes) -> bool:
    if b"cuda" in data or b"nccl" in data or b"nvidia-smi" in data:
        return True
    if b"flash_attention_" in data and _FLASH.search(data) is not None:
        return True
    if b".cpu()" in data and _keeps_copies(data):
        return True
    if _imports_any(data, _NEED_CUDA):
        return True
    if b"torch" not in data and not _brings_torch(data):
        return b"device" in data and _NUMBER.search(data) is not None
    # A plain search for the word comes before each regular expression: it is a hundred times as fast.
    return (
        any(word in data for word in _IN_FILES)
        or (b"register_buffer" in data and _BUFFER.search(data) is not None)
        or (b".accelerator." in data and _ACCELERATOR.search(data) is not None)
        or (b"load" in data and _loads(data))
        or ((b".to(" in data or b"device" in data) and moves_to_number(data))
    )


def uses_torch(data: bytes) -> bool:
    """Return whether a file's bytes name torch, or import a library that may use it."""
    return b"torch" in data or _brings_torch(data)


def _brings_torch(data: bytes) -> bool:
    return _imports_any(data, _LIBRARIES)


def _imports_any(data: bytes, packages: tuple[bytes, ...]) -> bool:
    """Return whether a file's bytes may import or name one of some packages."""
    return holds_word(data, packages) and not _imported(data).isdisjoint(packages)


def names_in(data: bytes) -> frozenset[bytes]:
    """Return all names in a file's bytes, those in comments and texts among them."""
    return frozenset(data.translate(_IN_NAMES).split())


def brings_torch(name: str) -> bool:
    """Return whether a full name, such as `transformers.pipeline`, is of torch or a library that uses it."""
    package = name.partition(".")[0]
    return package == "torch" or package.encode() in _LIBRARIES


def holds_word(data: bytes, words: tuple[bytes, ...]) -> bool:
    """Return whether a file's bytes hold one of some words, which are the same for all files."""
    return _word(words).search(data) is not None


@lru_cache(maxsize=16)
def _word(words: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(_any_of(map(bytes.decode, words)).encode())


@lru_cache(maxsize=1)  # two functions here ask, one after the other
def _imported(data: bytes) -> frozenset[bytes]:
    """Return the words of what a file's bytes may import or name, among them all packages."""
    imported = b" ".join(_IMPORTED.findall(data)).replace(b",", b" ").replace(b".", b" ")
    return frozenset(imported.split()).union(_IMPORTED_FROM.findall(data), _QUOTED.findall(data))


def _keeps_copies(data: bytes) -> bool:
    """Return whether copies that only a GPU makes may be kept, and what they are made of changed."""
    if _STATE.search(data):
        return True
    return _KEPT.search(data) is not None and _IN_PLACE.search(data) is not None


def _loads(data: bytes) -> bool:
    """Return whether `torch.load` or the like may be called, by whatever name torch goes."""
    if b"load_state_dict_from_url" in data or _LOAD_IMPORTED.search(data):
        return True
    starts = (found.start() for found in _LOAD.finditer(data))
    owners = (_OF.search(data[max(0, start - _FAR) : start]) for start in starts)
    loaders = {owner[1] for owner in owners if owner is not None}
    aliases = (rb"\b(torch|jit|hub)\s+as\s+%b\b|\b%b\s*=\s*torch\b" % (name, name) for name in loaders)
    return not loaders.isdisjoint(_LOADERS) or any(re.search(alias, data) for alias in aliases)


# -- lines ---------------------------------------------------------------------------------------------


def imported_words(
    imports: Iterable[ast.Import | ast.ImportFrom], words: tuple[bytes, ...]
) -> Iterator[bytes]:
    """Yield the names that a module gives to imports whose full name contains a word.

    With the word `cuda`, `from torch.cuda import synchronize as sync` yields `sync`.

    Args:
        imports: the import statements.
        words: the words, in any case, which are the same for all modules.
    """
    wanted = [word.decode().lower() for word in words]
    for statement in imports:
        module = f"{statement.module or ''}." if isinstance(statement, ast.ImportFrom) else ""
        for alias in statement.names:
            full = f"{module}{alias.name}".lower()
            used = alias.asname or (alias.name if module else "*")
            if used != "*" and any(word in full for word in wanted):
                yield used.encode()


def lines_that_matter(text: str, words: tuple[bytes, ...], imported: Iterable[bytes] = ()) -> list[int]:
    """Return the lines, from 1 and in order, that hold a word.

    Args:
        text: the text, whose lines end in a line feed.
        words: the words, in any case, which are the same for all modules.
        imported: further words, of this module.
    """
    text = text.lower()
    places = {found.start() for found in _to_line_ends(words).finditer(text)}
    for word in {word.decode().lower() for word in imported}:
        places.update(_once_a_line(text, word))
    return _lines(text, places)


@lru_cache(maxsize=4)
def _to_line_ends(words: tuple[bytes, ...]) -> re.Pattern[str]:
    """Return a pattern for the rest of a line from the first of some words on."""
    return re.compile(rf"(?:{_any_of(word.decode().lower() for word in words)})[^\n]*")


# The characters of Python code, the most frequent first; those that are not here are rarer.
_FREQUENT = " etsaronil_dcpfmu.,hg)(=\"b:y'kxvw[]-"
_RARITY = {character: place for place, character in enumerate(_FREQUENT, 1)}
_RAREST = 2 * len(_FREQUENT)


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern for one of some words; each is found fast by a rare character in it.

    Over the files of transformers, a plain alternation takes 9.0 s, a search for each word 3.3 s, this 0.5 s.
    """
    left = _shortest(words)
    if "" in left:
        return ""
    found = []
    while left:  # choose the character that is in the most words for how frequent it is
        counts = Counter("".join(map("".join, map(set, left))))
        _, rarest = max([(_RARITY.get(each, _RAREST) * count, each) for each, count in counts.items()])
        held = [word for word in left if rarest in word]
        ends = [f"{re.escape(word.partition(rarest)[2])}(?<={re.escape(word)})" for word in held]
        found.append(f"{re.escape(rarest)}(?:{'|'.join(ends)})")
        left = [word for word in left if rarest not in word]
    return "|".join(found) or "(?!)"


def _shortest(words: Iterable[str]) -> list[str]:
    """Return the words that contain none of the others, sorted."""
    found: list[str] = []
    for word in sorted({*words}, key=len):
        for other in found:
            if other in word:
                break
        else:
            found.append(word)
    return sorted(found)


def lines_with(text: str, word: str) -> list[int]:
    """Return the lines, from 1 and in order, that hold a word or a part of one."""
    return _lines(text, _once_a_line(text, word)) if word in text else []


def lines_with_name(text: str, name: str) -> list[int]:
    """Return the lines, from 1 and in order, that hold a name, and not only as a part of another."""
    return _lines(text, _names(text, name))


def _once_a_line(text: str, word: str) -> Iterator[int]:
    """Yield the first place of a word in each line that holds it."""
    at = text.find(word)
    while at >= 0:
        yield at
        end = text.find("\n", at)
        at = text.find(word, end) if end >= 0 else -1


def _names(text: str, name: str) -> Iterator[int]:
    at = text.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        if not _in_names(text[at - 1 : at]) and not _in_names(text[end : end + 1]):
            yield at
        at = text.find(name, end)


def _in_names(character: str) -> bool:
    return character == "_" or character.isalnum()


def _lines(text: str, places: Iterable[int]) -> list[int]:
    """Return the lines, from 1 and in order, in which some places are."""
    lines: list[int] = []
    line, before = 1, 0
    for at in sorted(places):
        line += text.count("\n", before, at)
        before = at
        if not lines or line != lines[-1]:
            lines.append(line)
    return lines
