"""Read what libraries other than torch do on a machine without CUDA from `library_facts.toml`."""

from __future__ import annotations

from typing import Any, NamedTuple

from devicefix.config import toml


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
        otherwise: the value without CUDA, if there is one for every program.
    """

    libraries: tuple[str, ...]
    ends: tuple[str, ...]
    option: str
    values: tuple[object, ...]
    outcome: str
    message: str
    tried: str = ""
    unless: tuple[str, ...] = ()
    otherwise: str = ""


class Call(NamedTuple):
    """A function or class of a library that raises an error without CUDA.

    Attributes:
        tried: the version that was tried, if it was.
        unless: an argument with which it runs.
    """

    tried: str = ""
    unless: str = ""


def _with_tuples(about: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}


_FACTS = toml.beside(__file__)

# By module, or by what is imported from one.
LIBRARIES = {
    name: Library(outcome, advice, _FACTS["versions"].get(name, ""))
    for outcome, found in _FACTS["libraries"].items()
    for name, advice in found.items()
}
FAILING: dict[str, list[str]] = _FACTS["failing"]
LIGHTNING = ("lightning", "pytorch_lightning"), ("Trainer", "Fabric")
ARGUMENTS = [Argument(**_with_tuples(about)) for about in _FACTS["arguments"]]
# By library and name: some have other modules for the same class.
CALLS = {
    (library, name): Call(**about)
    for library, found in _FACTS["calls"].items()
    for name, about in found.items()
}
# What parses a text, each with the language of the text.
PARSERS = {name: language for language, names in _FACTS["parsers"].items() for name in names}
COPING: dict[str, str] = _FACTS["coping"]
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
# How their names begin.
ATTENTION_BACKENDS = ("flash", "_flash", "sage", "_sage", "aiter", "xformers", "_native_cudnn")
# https://huggingface.co/docs/transformers/attention_interface; of kernels-community, "metal-…" are for MPS.
ATTENTIONS = ("flash_attention_", "kernels-community/", "paged|flash_attention_")
