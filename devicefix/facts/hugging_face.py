"""The functions and classes of Hugging Face's libraries, and the settings by which they load models."""

from __future__ import annotations

import ast

from devicefix.facts.flow.parameters import Place
from devicefix.facts.module import Facts
from devicefix.facts.scopes import Binding

# https://huggingface.co/docs/transformers/attention_interface, https://huggingface.co/docs/accelerate/concept_guides/big_model_inference
_LIBRARIES = {
    "transformers", "diffusers", "peft", "accelerate", "trl", "optimum", "sentence_transformers",
}  # fmt: skip
_HOPS = 4  # bindings, classes and files to follow from what is called to a library


def takes_attention(facts: Facts, function: ast.expr, place: Place) -> bool:
    """Return whether a function of a library takes the name of an implementation of attention at a place."""
    named = isinstance(place, str) and place.endswith("attn_implementation")
    return named and is_of_library(facts, function)


def takes_device_map(facts: Facts, function: ast.expr, place: Place) -> bool:
    """Return whether a function of a library takes a map of devices, or one device, at a place."""
    return place == "device_map" and is_of_library(facts, function)


def is_of_library(facts: Facts, node: ast.expr, hops: int = _HOPS) -> bool:
    """Return whether an expression is of a library, of a class that is based on one's, or made by either."""
    name = facts.resolve(node)
    if name is not None:
        return name.partition(".")[0] in _LIBRARIES or facts.others.is_of_library(name)
    if not hops:
        return False
    bindings = facts.bindings(node)
    if bindings:
        return all(_binds(facts, binding, hops - 1) for binding in bindings)
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return is_of_library(facts, body, hops) and is_of_library(facts, orelse, hops)
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
            owner = next(facts.tree.around(node, ast.ClassDef), None)
            return isinstance(owner, ast.ClassDef) and is_based_on_library(facts, owner, hops - 1)
        case ast.Attribute(value=inner) | ast.Call(func=inner):
            return is_of_library(facts, inner, hops)
    return False


def is_based_on_library(facts: Facts, definition: ast.ClassDef, hops: int = _HOPS) -> bool:
    """Return whether a class has a library's class among its bases, or theirs."""
    return any(is_of_library(facts, base, hops) for base in definition.bases)


def _binds(facts: Facts, binding: Binding, hops: int) -> bool:
    """Return whether a binding is to something of a library."""
    if isinstance(binding.node, ast.ClassDef):
        return is_based_on_library(facts, binding.node, hops)
    return binding.value is not None and is_of_library(facts, binding.value, hops)
