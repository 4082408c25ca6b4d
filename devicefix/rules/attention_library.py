from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.devices.context import Context
from devicefix.facts.exports.imports import full_names
from devicefix.files.text import parse
from devicefix.model import Edit, Effect, Finding, Fix, Import
from devicefix.rewrite import blocks
from devicefix.rewrite.lines import line_at
from devicefix.rewrite.placement import GUARDED_LIBRARIES
from devicefix.rules.base import Example, Rule
from devicefix.rules.shared.attention import definition, is_attention
from devicefix.rules.shared.attention_imports import AttentionImport
from devicefix.rules.shared.libraries import CudaLibraries


class AttentionLibrary(Rule):
    """
    ## What it does
    Finds imports of flash-attn and xformers functions that can be replaced by torch functions, such as `flash_attn_func` and
    `memory_efficient_attention`. `DF902` reports other imports from these libraries, such as `flash_attn_varlen_func`.

    ## Why it matters
    Without CUDA, flash-attn usually can't be installed, and xformers' attention functions usually fail.

    ## Example
    ```python
    from flash_attn import flash_attn_func

    out = flash_attn_func(q, k, v)
    ```

    ## Use instead
    ```python
    if torch.cuda.is_available():
        from flash_attn import flash_attn_func
    else:

        def flash_attn_func(q, k, v):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return out.transpose(1, 2).contiguous()

    out = flash_attn_func(q, k, v)
    ```

    ## Fix safety
    The fix is usually safe: with CUDA, the program calls the library as before. Without CUDA, it calls a function that
    the fix adds, whose results differ from the library's only by rounding.

    The fix is unsafe with dropout, because torch and the library draw different random numbers. It is also unsafe if
    the mask may be anything other than `None`. If the program calls the function with arguments
    that torch doesn't support, such as `window_size` or an xformers mask, passes it as a value or re-exports it,
    `DF902` reports the import instead.
    """

    code = "DF417"
    name = "attention-library"
    summary = "Attention is computed by a library that needs CUDA"
    common_words = (b"flash_attn", b"xformers")  # a file that imports one is parsed anyway
    before = ("DF902",)
    sees_handled = True
    INVALID = (
        Example(
            "an import whose error ends the program by an assertion",
            before="""
                import torch

                try:
                    from flash_attn import flash_attn_func
                except Exception:
                    assert False, "install flash-attn first"


                def attend(q, k, v):
                    return flash_attn_func(q, k, v)
            """,
            after="""
                import torch

                try:
                    if torch.cuda.is_available():
                        from flash_attn import flash_attn_func
                    else:

                        def flash_attn_func(q, k, v):
                            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
                            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
                            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
                            return out.transpose(1, 2).contiguous()
                except Exception:
                    assert False, "install flash-attn first"


                def attend(q, k, v):
                    return flash_attn_func(q, k, v)
            """,
        ),
        Example(
            "a function of flash-attn",
            before="""
                import torch
                from flash_attn import flash_attn_func

                y = flash_attn_func(q, k, v)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    from flash_attn import flash_attn_func
                else:

                    def flash_attn_func(q, k, v):
                        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
                        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
                        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
                        return out.transpose(1, 2).contiguous()

                y = flash_attn_func(q, k, v)
            """,
        ),
        Example(
            "an import above that of torch",
            before="""
                from flash_attn import flash_attn_func as attend  # noqa: I001
                import torch
                import torch.nn.functional as F

                def run(q, k, v):
                    return attend(q, k, v, 0.0, 0.5, True)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    from flash_attn import flash_attn_func as attend  # noqa: I001
                else:

                    def attend(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
                        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
                        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
                        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
                        mask = seen.tril(k.shape[2] - q.shape[2]) if causal else None
                        out = F.scaled_dot_product_attention(
                            q, k, v, attn_mask=mask, dropout_p=dropout_p, scale=softmax_scale
                        )
                        return out.transpose(1, 2).contiguous()

                import torch.nn.functional as F

                def run(q, k, v):
                    return attend(q, k, v, 0.0, 0.5, True)
            """,
        ),
        Example(
            "dropout, in a function",
            before="""
                import torch

                def attend(q, k, v):
                    from flash_attn import flash_attn_func
                    return flash_attn_func(q, k, v, dropout_p=0.1)
            """,
            after="""
                import torch

                def attend(q, k, v):
                    if torch.cuda.is_available():
                        from flash_attn import flash_attn_func
                    else:

                        def flash_attn_func(q, k, v, dropout_p=0.0):
                            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
                            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
                            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p)
                            return out.transpose(1, 2).contiguous()

                    return flash_attn_func(q, k, v, dropout_p=0.1)
            """,
            unsafe=True,
        ),
        Example(
            "xformers, with a mask that may be anything",
            before="""
                import torch.nn.functional as F
                from xformers.ops import memory_efficient_attention, unbind

                def attend(self, qkv, bias):
                    q, k, v = unbind(qkv, 2)
                    return memory_efficient_attention(q, k, v, bias, scale=self.scale)
            """,
            after="""
                import torch
                import torch.nn.functional as F

                if torch.cuda.is_available():
                    from xformers.ops import memory_efficient_attention, unbind
                else:
                    unbind = torch.unbind

                    def memory_efficient_attention(query, key, value, attn_bias=None, scale=None):
                        query, key, value = (x.movedim(1, -2) for x in (query, key, value))
                        out = F.scaled_dot_product_attention(query, key, value, attn_bias, scale=scale)
                        return out.movedim(-2, 1).contiguous()

                def attend(self, qkv, bias):
                    q, k, v = unbind(qkv, 2)
                    return memory_efficient_attention(q, k, v, bias, scale=self.scale)
            """,
            unsafe=True,
        ),
        Example(
            "an import that is not used",
            before="""
                import torch
                from flash_attn import flash_attn_func
                x = torch.zeros(3)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    from flash_attn import flash_attn_func

                x = torch.zeros(3)
            """,
        ),
        Example(
            "both libraries, and another fix that needs torch",
            before="""
                from flash_attn import flash_attn_func
                from xformers.ops import unbind


                def attend(x):
                    q, k, v = unbind(x.cuda(), 2)
                    return flash_attn_func(q, k, v)
            """,
            after="""
                import torch

                if torch.cuda.is_available():
                    from flash_attn import flash_attn_func
                else:

                    def flash_attn_func(q, k, v):
                        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
                        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
                        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
                        return out.transpose(1, 2).contiguous()

                if torch.cuda.is_available():
                    from xformers.ops import unbind
                else:
                    unbind = torch.unbind

                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


                def attend(x):
                    q, k, v = unbind(x.to(device), 2)
                    return flash_attn_func(q, k, v)
            """,
        ),
    )
    VALID = (
        Example(
            "arguments that torch has no counterpart of",
            """
                import torch
                from flash_attn import flash_attn_func

                y = flash_attn_func(q, k, v, alibi_slopes=slopes)
            """,
        ),
        Example(
            "a function for sequences of various lengths",
            """
                import torch
                from flash_attn import flash_attn_func, flash_attn_varlen_func

                y = flash_attn_func(q, k, v)
                z = flash_attn_varlen_func(q, k, v, lengths, lengths, most, most)
            """,
        ),
        Example(
            "a function that is passed on",
            """
                import torch
                from flash_attn import flash_attn_func

                y = run(flash_attn_func, q, k, v)
            """,
        ),
        Example(
            "arguments that are not known",
            """
                import torch
                from flash_attn import flash_attn_func

                y = flash_attn_func(*tensors)
                z = flash_attn_func(q, k, v, **options)
            """,
        ),
        Example(
            "another mask of xformers",
            """
                import torch
                from xformers.ops import fmha, memory_efficient_attention

                mask = fmha.BlockDiagonalMask.from_seqlens(lengths)
                y = memory_efficient_attention(q, k, v, attn_bias=mask)
            """,
        ),
        Example(
            "a module whose function has a name that is taken",
            """
                import torch
                import flash_attn

                def flash_attn_func(q):
                    return flash_attn.flash_attn_func(q, q, q)
            """,
        ),
        Example(
            "an optional import",
            """
                import torch

                try:
                    from flash_attn import flash_attn_func
                except ImportError:
                    from .plain import flash_attn_func

                y = flash_attn_func(q, k, v)
            """,
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._libraries = CudaLibraries(context)
        self._found: dict[ast.AST, AttentionImport] = {}

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        """Find the imports before `cuda-only-library` does, which reports those that are not found."""
        by_package: dict[str, list[AttentionImport]] = {}
        for statement in self.facts.tree.imports:
            if any(name.partition(".")[0] in GUARDED_LIBRARIES for name in full_names(statement)):
                found = AttentionImport(self.context, statement)
                if not self._libraries.copes(statement, found.package):
                    by_package.setdefault(found.package, []).append(found)
        for imports in by_package.values():
            if all(each.can_be_replaced() and each.has_versions() for each in imports):
                self._found |= {each.statement: each for each in imports}
        self.context.mark_handled(*self._found)
        yield from ()

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        found = self._found.get(node)
        if found is None:
            return
        if not found.names:
            message = f"`{found.package}` needs CUDA; import it only if CUDA is available"
        elif not (functions := list(filter(is_attention, found.names))):
            message = f"`{found.package}` needs CUDA; without CUDA, use `torch.unbind`"
        else:
            used = " and ".join(f"`{function}`" for function in functions)
            need = "need" if " and " in used else "needs"
            instead = "without CUDA, use `torch.nn.functional.scaled_dot_product_attention`"
            message = f"{used} {need} CUDA; {instead}"
        yield self.finding(node, message, self._fix(found))

    visit_ImportFrom = visit_Import

    def _fix(self, found: AttentionImport) -> Fix:
        """Return the fix: an import with CUDA, and definitions without it."""
        torch = self.devices.torch(found.statement)
        calls = (
            Edit(*self.context.source.span(use.node), found.names[use.function])
            for use in found.uses or ()
            if not isinstance(use.node, ast.Name)
        )
        doubts = "; ".join(found.doubts())
        why = doubts or self.devices.why_unsafe(found.statement)
        is_moved = any(isinstance(need, Import) for need in torch.needs)  # an import further down is too late
        imports = (each for each in self.facts.tree.module.body if is_moved and isinstance(each, ast.Import))
        later = (blocks.remove(self.facts, each) for each in imports if ast.unparse(each) == "import torch")
        return Fix((*later, self._choice(found, torch.text, is_moved), *calls), why, torch.needs)

    def _choice(self, found: AttentionImport, torch: str, imports: bool) -> Edit:
        """Return the edit that makes an import a choice between it and definitions.

        Args:
            found: the import.
            torch: the name of torch.
            imports: whether the fix imports torch above the first of these imports.
        """
        source, statement = self.context.source, found.statement
        start, end = source.span(statement)
        line_end = source.line_end(end)
        comment = source.text[end:line_end].rstrip()
        lines = [f"if {torch}.cuda.is_available():", f"    {found.code()}{comment}"]
        lines += self._otherwise(found, torch)
        _, *inside = _kinds(parse("\n".join(lines)).body)
        indent, before = blocks.indent_of(self.facts, statement), source.indentation(start)
        if found.scope.is_module and not before:
            number, replaced = statement.lineno, [each.statement.lineno for each in self._found.values()]
            is_below_code = line_at(source, number - 2).strip() and number - 1 not in replaced
            lines = [""] * bool(is_below_code or (imports and number == min(replaced))) + lines
        is_last = self.facts.tree.block(statement)[-1] is statement
        lines += [""] * (not is_last and bool(line_at(source, source.position(line_end)[0]).strip()))
        first, *others = (_indented(line, indent) for line in lines)
        code = source.newline.join([first, *(line and before + line for line in others)])
        effect = Effect(added=("If",), inside=tuple(inside), removed=((start, end),))
        return Edit(start, line_end, code, effect=effect)

    def _otherwise(self, found: AttentionImport, torch: str) -> list[str]:
        """Return the lines of the branch without CUDA, indented by four spaces."""
        lines = ["else:"] if found.names else []
        functional = self._functional(found.statement) or f"{torch}.nn.functional"
        for function in sorted(found.names, key=is_attention):
            new = definition(function, found.names[function], found.given(function), torch, functional)
            lines += [""] if len(new) > 1 else []
            lines += [f"    {line}" for line in new]
        return lines

    def _functional(self, statement: ast.stmt) -> str | None:
        """Return the module's own name for `torch.nn.functional`, such as `F`, None if it has none."""
        module = "torch.nn.functional"
        scope = self.facts.tree.scope(statement)
        for name, bindings in self.facts.tree.root.bindings.items():
            imported = [binding.imported for binding in bindings]
            found = scope.lookup(name)
            if imported == [module] and bindings[0].node in self.facts.tree.module.body:
                if name != "torch" and found is not None and found[0].is_module:
                    return name
        return None


def _indented(line: str, indent: str) -> str:
    """Return a line that is indented by steps of four spaces with another indentation."""
    code = line.lstrip(" ")
    return indent * ((len(line) - len(code)) // 4) + code


def _kinds(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the kinds of statements and those in their blocks, in the order of the source."""
    for statement in statements:
        yield type(statement).__name__
        for block in ("body", "orelse"):
            yield from _kinds(getattr(statement, block, []))
