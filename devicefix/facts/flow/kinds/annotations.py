"""Infer the kinds that an annotation allows, and those of an instance of a class."""

from __future__ import annotations

import ast

from devicefix.facts.flow.kinds.inference import DEPTH, Inference
from devicefix.facts.flow.kinds.kind import UNKNOWN, Kind, Kinds, union
from devicefix.facts.flow.kinds.library import OF_ANNOTATIONS
from devicefix.facts.scopes import dotted


class Annotations(Inference):
    """The kinds of annotations and instances."""

    def annotated(self, annotation: ast.expr) -> Kinds:
        """Return the kinds that an annotation allows."""
        match annotation:
            case ast.Constant(value=None):
                return Kinds({Kind.NONE: annotation})
            case ast.Constant(value=str(text)):
                return _of_annotation(annotation, text) if text in OF_ANNOTATIONS else UNKNOWN
            case ast.BinOp(left=left, right=right, op=ast.BitOr()):
                return self.annotated(left) | self.annotated(right)
            case ast.Subscript(value=outer, slice=inner):
                return self._generic(annotation, (dotted(outer) or "").rpartition(".")[2], inner)
        name = self._facts.resolve(annotation) or dotted(annotation) or ""
        if name in OF_ANNOTATIONS:
            return _of_annotation(annotation, name)
        return self.instance(annotation)

    def _generic(self, annotation: ast.expr, outer: str, inner: ast.expr) -> Kinds:
        members = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if outer == "Optional":
            return self.annotated(inner) | Kinds({Kind.NONE: annotation})
        if outer == "Union":
            return union(map(self.annotated, members))
        if outer in ("Annotated", "Final", "ClassVar"):
            return self.annotated(members[0])
        if outer.lower() in ("list", "tuple", "dict", "set", "sequence", "iterable", "mapping"):
            return Kinds({Kind.COLLECTION: annotation})
        return UNKNOWN

    def instance(self, of: ast.expr, depth: int = DEPTH) -> Kinds:
        """Return the kinds of an instance of a class, with the class's name; unknown for what is no class."""
        name = self._facts.resolve(of)
        bindings = self._facts.tree.bound(of)
        if name is None and bindings:
            definition = bindings[0].node if len(bindings) == 1 else None
            return self._of_class(definition, depth) if isinstance(definition, ast.ClassDef) else UNKNOWN
        full = _class_name(name or (of.id if isinstance(of, ast.Name) else ""))
        if not full:
            return UNKNOWN
        kind = Kind.MODULE if full.startswith("torch.nn.") else Kind.OBJECT
        return Kinds({kind: of}, classes=frozenset({full}))

    def _of_class(self, definition: ast.ClassDef, depth: int) -> Kinds:
        bases = [self.instance(base, depth - 1) if depth else UNKNOWN for base in definition.bases]
        kind = Kind.MODULE if any(Kind.MODULE in base.seen for base in bases) else Kind.OBJECT
        return Kinds({kind: definition}, classes=frozenset({definition.name}))


def _of_annotation(node: ast.expr, name: str) -> Kinds:
    kind = OF_ANNOTATIONS[name]
    classes = {name} if kind in (Kind.TENSOR, Kind.MODULE) else ()  # or one that inherits from it
    return Kinds({kind: node}, classes=frozenset(classes))


def _class_name(name: str) -> str:
    """Return the full name of a class, also for one of its methods; empty for other names."""
    owner, _, last = name.rpartition(".")
    if last[:1].isupper():
        return name
    return owner if owner.rpartition(".")[2][:1].isupper() else ""
