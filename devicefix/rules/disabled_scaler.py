from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.values import is_constant, last_name
from devicefix.model import Edit, Finding, Fix
from devicefix.rules.base import Example, Rule

_SCALERS = {
    "torch.cuda.amp.GradScaler",
    "torch.cuda.amp.grad_scaler.GradScaler",
    "torch.amp.GradScaler",
    "torch.GradScaler",
    "torch.amp.grad_scaler.GradScaler",
}
_KEYS = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


class DisabledScaler(Rule):
    """
    ## What it does
    Finds code that reads the state of a `GradScaler`, such as `scaler.state_dict()["scale"]`.

    ## Why it matters
    Without CUDA, a CUDA `GradScaler` disables itself: its `state_dict()` is empty, so `state_dict()["scale"]` raises a
    `KeyError`. Most methods still work, with a scale of 1.

    ## Example
    ```python
    logger.log(scaler.state_dict()["scale"])
    ```

    ## Use instead
    ```python
    logger.log(scaler.state_dict().get("scale", 1.0))
    ```

    ## Fix safety
    The fix for the scale is safe even if the object is not a `GradScaler`: if the object's state contains `"scale"`,
    the value is the same as before. The fix is unsafe in a `try` block with an `except` clause, which may expect the
    `KeyError`. Access to other keys has no fix.

    The rule recognizes a `GradScaler` by its class, by a class name such as `NativeScaler` or, if the class is unknown,
    by a name such as `loss_scaler`.
    """

    code = "DF410"
    name = "disabled-scaler"
    summary = "A `GradScaler`'s state, which is empty without CUDA, is read"
    words = (b"Scaler", b"scaler")
    companions = (b"state_dict()", b'"scale"', b"'scale'")
    common_words = companions
    INVALID = (
        Example(
            "the scale of a scaler",
            before="""
                import torch
                from torch.cuda.amp import GradScaler

                q7 = GradScaler()
                print(q7.state_dict()["scale"])
            """,
            after="""
                import torch
                from torch.cuda.amp import GradScaler

                q7 = GradScaler()
                print(q7.state_dict().get("scale", 1.0))
            """,
        ),
        Example(
            "the scale of a class around a scaler, by a variable",
            before="""
                import torch
                from utils import NativeScaler

                loss_scaler = NativeScaler()
                state = loss_scaler.state_dict()
                loss_scale = state['scale'] * 2
            """,
            after="""
                import torch
                from utils import NativeScaler

                loss_scaler = NativeScaler()
                state = loss_scaler.state_dict()
                loss_scale = state.get('scale', 1.0) * 2
            """,
        ),
        Example(
            "a scale that may be missing",
            before="""
                import torch

                try:
                    scale = scaler.state_dict()["scale"]
                except KeyError:
                    scale = None
            """,
            after="""
                import torch

                try:
                    scale = scaler.state_dict().get("scale", 1.0)
                except KeyError:
                    scale = None
            """,
            unsafe=True,
        ),
        Example(
            "other parts of the state",
            before="""
                import torch

                q7 = torch.amp.GradScaler("cuda")
                print(q7.state_dict()["growth_factor"], q7._growth_tracker, q7.get_backoff_factor())
            """,
        ),
    )
    VALID = (
        Example(
            "a module with such a parameter",
            """
                import torch

                state = model.state_dict()
                print(state["scale"], model._scale)
            """,
        ),
        Example(
            "a scaler of the CPU",
            """
                import torch

                q7 = torch.amp.GradScaler("cpu")
                print(q7.state_dict()["scale"], q7._scale)
            """,
        ),
        Example(
            "a scale that is asked for first",
            """
                import torch

                scaler = torch.cuda.amp.GradScaler()
                state = scaler.state_dict()
                scale = state["scale"] if "scale" in state else None
                if "scale" in scaler.state_dict() and scaler.state_dict()["scale"] > 1:
                    print(scaler.state_dict()["scale"])
            """,
        ),
        Example(
            "a scaler that is on",
            """
                import torch

                if scaler.is_enabled():
                    print(scaler.state_dict()["scale"])
            """,
        ),
    )

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr != "state_dict":
            return
        if self._is_scaler(function.value):
            for use in self.context.forwards.of(node).uses:
                yield from self._item(use)

    def _item(self, state: ast.expr) -> Iterator[Finding]:
        """Check `state["scale"]`."""
        item = self.facts.tree.parents.get(state)
        match item:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ast.Load()) if (
                value is state and key in _KEYS and not self._is_on(item, f'"{key}"', f"'{key}'")
            ):
                advice = "use 1.0 instead" if key == "scale" else "check for the key first"
                message = (
                    f"the state of a CUDA `GradScaler` is empty without CUDA, so it has no `{key}`; {advice}"
                )
                yield self.finding(item, message, self._get(item) if key == "scale" else None)

    def _get(self, item: ast.Subscript) -> Fix | None:
        """Return the fix that gets the scale, or 1.0 if there is none."""
        if self.facts.tree.f_string(item) is not None:
            return None
        source = self.context.source
        key = source.code(item.slice)
        edit = Edit(source.span(item.value)[1], source.span(item)[1], f".get({key}, 1.0)")
        caught = any(
            isinstance(parent, ast.Try) and child in parent.body and parent.handlers
            for child, parent in self.facts.tree.ancestors(item)
        )
        return Fix((edit,), "the program may catch the KeyError" if caught else "")

    def _is_scaler(self, node: ast.expr) -> bool:
        """Return whether an object is a scaler of CUDA; one of unknown class is, if it is called so."""
        values = [node] if isinstance(node, ast.Call) else [each.value for each in self.facts.bindings(node)]
        values = [value.value if isinstance(value, ast.NamedExpr) else value for value in values]
        made = [value for value in values if isinstance(value, ast.Call)]
        known = [value for value in made if self.facts.resolve(value.func) in _SCALERS]
        if known:
            return any(not _of_cpu(value) for value in known)
        kinds = self.facts.kinds.of(node)
        names = [name.rpartition(".")[2] for name in kinds.classes] or [last_name(node)]
        return any("scaler" in name.lower() for name in names)

    def _is_on(self, node: ast.expr, *words: str) -> bool:
        """Return whether a node is evaluated only with CUDA, or after a question that holds one of some words."""
        code = self.context.source.code
        for child, parent in self.facts.tree.ancestors(node):
            test = getattr(parent, "test", None)
            tests = parent.values if isinstance(parent, ast.BoolOp) else [] if test is None else [test]
            texts = [code(each) for each in tests if each is not child]
            if any(word in text for text in texts for word in ("is_enabled", *words)):
                return True
        return self.facts.is_guarded(node)


def _of_cpu(call: ast.Call) -> bool:
    """Return whether a scaler is made for the CPU."""
    devices = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return any(is_constant(device, "cpu") for device in devices)
