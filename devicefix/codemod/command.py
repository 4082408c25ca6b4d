"""The codemod: the engine's rewrite of one module, as a transform of LibCST."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import libcst
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from devicefix.config import load
from devicefix.config.printable import printable, printable_path
from devicefix.config.resolver import Nearest
from devicefix.config.settings import ConfigError, Settings
from devicefix.config.values import TARGETS, Origin, read_codes
from devicefix.rules import known_codes
from devicefix.runner.run import check_text

_Statement = libcst.SimpleStatementLine | libcst.BaseCompoundStatement


class DeviceAgnostic(CodemodCommand):
    """Rewrite code that is tied to CUDA to also run without CUDA.

    It makes the changes of `devicefix rewrite FILE` for each file, and warns of the findings that remain.
    The nearest configuration applies; the arguments override it.

    Args:
        context: the state of LibCST for the file.
        unsafe_fixes: whether to make fixes that may change a run on CUDA as well.
        select: the codes of the only rules to use.
        ignore: the codes of rules not to use.
        target: what the program runs on besides the CPU.
    """

    DESCRIPTION = "Rewrite code tied to CUDA so that it also runs without CUDA (devicefix)."

    def __init__(
        self,
        context: CodemodContext,
        *,
        unsafe_fixes: bool = False,
        select: Sequence[str] | None = None,
        ignore: Sequence[str] | None = None,
        target: str | None = None,
    ) -> None:
        super().__init__(context)
        self._values = {
            "unsafe-fixes": unsafe_fixes or None,
            "select": select,
            "ignore": ignore,
            "target": target,
        }

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """Add the codemod's options to LibCST's parser."""
        arg_parser.add_argument(
            "--unsafe-fixes",
            action="store_true",
            help="Also apply fixes that may change the program's behavior.",
        )
        for name, what in (("--select", "Enable only"), ("--ignore", "Disable")):
            about = f"{what} these rules: DF101,DF2."
            arg_parser.add_argument(name, type=_codes, metavar="CODES", help=about)
        arg_parser.add_argument("--target", choices=TARGETS, help="The device to support besides the CPU.")

    def transform_module_impl(self, tree: libcst.Module) -> libcst.Module:
        """Return the rewritten module.

        Raises:
            SkipFile: devicefix could not rewrite it, or the configuration is wrong; the message says why.
        """
        path = self.context.filename or "module.py"
        try:
            settings = Nearest(self._made, Path(path).parent).root
        except ConfigError as problem:
            raise SkipFile(printable(str(problem))) from None
        outcome = check_text(tree.bytes, path, settings)
        if outcome.error:
            raise SkipFile(printable(outcome.error))
        for finding in outcome.result.remaining:
            where = f"{printable_path(path)}:{finding.line}:{finding.column}"
            self.warn(f"{where}: {finding.code} {printable(finding.message)}")
        if outcome.result.output is None:
            return tree
        return _rewritten(tree, outcome.result.output)

    def _made(self, file: Path | None) -> Settings:
        """Return the settings that a configuration makes together with the options."""
        settings = load.load(file, known_codes)
        settings = load.with_values(settings, self._values, Origin(Path(), known_codes))
        return replace(settings, fix=True)


def _rewritten(tree: libcst.Module, output: bytes) -> libcst.Module:
    """Return the tree of new code. Statements that do not change are kept, and not parsed again.

    Args:
        tree: the tree of the old code.
        output: the new code.
    """
    text, at = output.decode(tree.encoding), 0
    kept: dict[str, _Statement] = {}
    parts = []  # the new code, with a short statement in the place of each one that is kept
    for number, statement in enumerate(tree.body):
        code, short = tree.code_for_node(statement), f"kept_{number}{tree.default_newline}"
        start = text.find(code, at)
        if start < 0 or text[max(start - 1, 0) : start] not in ("", "\n", "\r"):
            continue
        if isinstance(statement, libcst.BaseCompoundStatement):  # the first block sets the indentation
            short = f"if 1:{tree.default_newline}{tree.default_indent}{short}"
        kept[short] = statement
        parts += [text[at:start], short]
        at = start + len(code)
    changed = libcst.parse_module("".join([*parts, text[at:]]), tree.config_for_parsing)
    body = []
    for new in changed.body:
        old = kept.get(changed.code_for_node(new.with_changes(leading_lines=())), new)
        if old is not new and new.leading_lines:
            old = old.with_changes(leading_lines=[*new.leading_lines, *old.leading_lines])
        body.append(old)
    made = changed.with_changes(body=body, encoding=tree.encoding, default_indent=tree.default_indent)
    return made if made.bytes == output else libcst.parse_module(output)


def _codes(words: str) -> tuple[str, ...]:
    """Read the codes of an option."""
    try:
        return read_codes([words], Origin(Path(), known_codes))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
