"""Prefilter a file, and run the rules over a module."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING
from weakref import proxy

from devicefix.config.settings import RuleOptions
from devicefix.facts.comments import SKIP_FILE, UNUSED, may_be_unused, silenced, unused
from devicefix.facts.prefilter import (
    code_of,
    holds_word,
    imported_words,
    lines_that_matter,
    may_matter,
    uses_torch,
)
from devicefix.model import Definition, Doubt, Finding, Fix, Import, Refused, Safety
from devicefix.rewrite.edits import is_too_deep, new_code
from devicefix.rewrite.selfcheck import loses_comment

if TYPE_CHECKING:
    from devicefix.config.settings import Settings
    from devicefix.devices.choose import Devices
    from devicefix.devices.context import Context
    from devicefix.devices.define import Plan
    from devicefix.facts import Facts
    from devicefix.facts.project import Project
    from devicefix.files.text import Source
    from devicefix.rules.base import Rule


def matters(data: bytes, settings: Settings, known: bool | None = None) -> bool:
    """Return whether a file needs parsing: its bytes may contain a finding, and don't ask to be skipped.

    Args:
        data: the bytes.
        settings: which rules are on.
        known: the answer of `may_matter`, None if it has not been asked.
    """
    needed = may_matter(data) if known is None else known
    needed = needed or _holds_words(data, settings) or may_be_unused(data, settings)
    return needed and not skipped(data)


def skipped(data: bytes) -> bool:
    """Return whether a file's bytes ask that it be skipped."""
    return b"skip-file" in data and SKIP_FILE.search(data) is not None


def _holds_words(data: bytes, settings: Settings) -> bool:
    """Return whether the code in a file's bytes holds what an enabled rule looks for."""
    return uses_torch(data) and _holds_word(data, settings) and _holds_word(code_of(data), settings)


def _holds_word(data: bytes, settings: Settings) -> bool:
    """Return whether bytes hold a word of an enabled rule, and a companion that it needs."""
    from devicefix.rules.registry import words, words_by_companions

    return holds_word(data, words(settings)) and any(  # most files hold none: one search is enough
        any(word in data for word in found) and (not companions or any(word in data for word in companions))
        for companions, found in words_by_companions(settings).items()
    )


def check_module(
    facts: Facts, path: str, settings: Settings, project: Project
) -> tuple[list[Finding], Devices | None]:
    """Return the findings in a module, and the devices that their fixes rely on.

    Args:
        facts: the module's facts.
        path: the path of its file.
        settings: those for the file.
        project: the facts of all files.

    Returns:
        The findings in the order of the file, without those that a comment silences. The devices are None if
        the module is nested too deeply to be checked.
    """
    source, module = facts.source, facts.tree.module
    try:
        found, devices = _find(facts, path, settings, project)
    except RecursionError as problem:
        from devicefix.rules.unparsable import explain

        finding = explain(b"", problem)
        return [finding] if settings.enabled(finding.code) else [], None
    findings = [finding for finding in found if settings.ignore_noqa or not silenced(source, finding, module)]
    if settings.enabled(UNUSED, default=False):
        from devicefix.rules.registry import RULES, by_position

        enabled = rule_options(settings).enabled
        findings += unused(source, module, found, {code: code in enabled for code in RULES})
        findings.sort(key=by_position)
    return [each if settings.fixes(each.code) else replace(each, fix=None) for each in findings], devices


def _find(
    facts: Facts, path: str, settings: Settings, project: Project, plan: Plan | None = None
) -> tuple[list[Finding], Devices]:
    from devicefix.devices.context import Context
    from devicefix.devices.define import Plan
    from devicefix.engine.kept_checks import with_checks
    from devicefix.engine.other_accelerators import unless_others
    from devicefix.engine.stops import Stops
    from devicefix.rules.registry import ORDER, RULES, by_position

    facts = facts.informed(project.view(path))
    options = replace(rule_options(settings), seen=settings.evidence.seen_in(path))
    context = Context(facts.source, facts, project, path, options)
    context.devices.follow(plan or Plan.IN_MODULE)
    enabled = (RULES[code] for code in ORDER if code in options.enabled)
    on = [rule(context) for rule in enabled if options.seen or not rule.needs_run]
    folded = Stops(context, [*_visit(context, settings, on)]).fold()
    possible = [(node, _unless_impossible(facts.source, each)) for node, each in folded]
    pairs = [*unless_others(context, possible)]
    fails = (each.code for _, each in pairs if each.code[2] in _FAILING or each.code == _REJECTED)
    failing = {code for code in fails if RULES[code].fails}
    kept = Stops(context, [*with_checks(context.forwards, pairs, failing)]).fold()
    found = _without_needless(sorted((each for _, each in kept), key=by_position), settings.unsafe_fixes)
    if plan is None:
        made = (finding.fix for finding in found if finding.is_fixable(settings.unsafe_fixes))
        plan = context.devices.replan(*(fix.needs for fix in made if fix is not None))
        if plan is not Plan.IN_MODULE:
            return _find(facts, path, settings, project, plan)
    return _unless_around_stays(facts.source, found), context.devices


@lru_cache(maxsize=8)
def rule_options(settings: Settings) -> RuleOptions:
    """Return the settings that rules may use."""
    from devicefix.rules.registry import RULES

    rules = (rule for rule in RULES.values() if settings.target in rule.targets)
    on = (rule.code for rule in rules if settings.enabled(rule.code, rule.default))
    return RuleOptions(settings.target, settings.torch_version, frozenset(on), settings.unsafe_fixes)


# Groups of rules whose fixes avoid an error: moves, devices, types, `torch.cuda`, checkpoints, distributed.
_FAILING = "123456"
_REJECTED = "DF704"  # a check that ends the program


def _visit(context: Context, settings: Settings, rules: list[Rule]) -> Iterator[tuple[ast.AST, Finding]]:
    """Yield the findings of the rules and their nodes, without the fixes that are not possible there."""
    from devicefix.engine.guarded_uses import GuardedUses
    from devicefix.facts.exports import patching
    from devicefix.rules.base import attributes_of
    from devicefix.rules.dispatch import tables, visit
    from devicefix.rules.registry import RANKS, RULES, WORDS, words
    from devicefix.rules.shared.counts import IdleLoops

    tree = context.facts.tree
    only_data = all(map(_is_data, tree.module.body))
    imported = imported_words(tree.imports, words(settings))
    lines = lines_that_matter(tree.text, WORDS, imported)
    fallbacks = context.facts.guards.fallbacks
    idle = IdleLoops(context.facts)
    patched = patching(context.facts, "is_available")
    replaced = context.project.replaces_question(context.devices.path)
    guarded = GuardedUses(context, context.facts.is_guarded)
    # A pattern is compared, and can hold no call.
    context.handled.update(part for case in tree.of_kind(ast.match_case) for part in ast.walk(case.pattern))
    uses = proxy(guarded)  # it holds the context: a circle would keep the tree until it is collected
    context.is_held = lambda node: idle.hold(node) or uses.hold(node)
    seen = {each.line for each in context.options.seen}
    statements = tree.statements_at(sorted({0, *lines, *context.facts.guards.lines, *seen}))  # 0: the module
    attributes = attributes_of(tuple(map(type, rules)))
    in_strings: list[Finding] = []
    for node, finding in visit(statements, tables(rules, RANKS), context.handled, attributes):
        if "cuda" in RULES[finding.code].targets and context.is_held(node):
            context.release(node)
            continue
        string = tree.f_string(node)
        sound = _unless_refused(_in_data(finding) if only_data else finding)
        if sound.fix and context.compiled.compiles(node) and not _stays_compiled(context, node, sound.fix):
            sound = sound.unfixed("because TorchScript compiles this code; choose the device in the caller")
        more = ["TypeError"] if finding.code[2] == "3" else []  # of torch's types, in builds without CUDA
        fallback = fallbacks.of(node, None, *more) if sound.fix and finding.code[2] in _FAILING else None
        if fallback is not None:
            if fallback.certain:
                continue
            sound = sound.unfixed(
                f"because this code only tests for CUDA, and line {fallback.line} handles the error"
            )
        bypassed = _bypassed(context, sound.fix) if sound.safety is Safety.SAFE else None
        if bypassed is not None:
            sound = sound.unsafe(f"the project patches `{bypassed}` and may expect this call")
        elif sound.safety is Safety.SAFE and (replaced or _is_answered(node, context.facts, patched)):
            sound = sound.unsafe("the fix calls `torch.cuda.is_available`, which the project patches")
        if string is not None:
            sound = _in_string(context, string, sound)
            if sound.fix is None and sound in in_strings:
                continue  # for another part of the string
            in_strings.append(sound)
        yield node, sound


def _is_answered(node: ast.AST, facts: Facts, patched: frozenset[ast.AST]) -> bool:
    """Return whether a node is part of a function or class that replaces a function of `torch.cuda`."""
    return bool(patched) and any(parent in patched for _, parent in facts.tree.ancestors(node))


def _is_data(statement: ast.stmt) -> bool:
    """Return whether a statement only binds values, its own or those of another module."""
    if isinstance(statement, ast.ImportFrom):
        return statement.names[0].name == "*"
    return isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr))


def _in_data(finding: Finding) -> Finding:
    """Return a finding without its fix if that would import torch into a module of plain values."""
    if finding.fix is None or Import("torch") not in finding.fix.needs:
        return finding
    return finding.unfixed("because this file only contains constants; choose the device where they are used")


def _unless_refused(finding: Finding) -> Finding:
    """Return a finding without a fix that needs what nothing can give it there, or with an unsafe one."""
    from devicefix.devices.choose import OF_OTHERS

    needs = finding.fix.needs if finding.fix else frozenset()
    refused = [need.why for need in needs if isinstance(need, Refused)]
    if refused:
        return finding.unfixed(min(refused))  # there is no order among them
    doubts = {need.why for need in needs if isinstance(need, Doubt)} - {OF_OTHERS}  # see `unless_others`
    for why in sorted(doubts):
        if finding.fix is not None and why not in finding.fix.why:
            finding = finding.unsafe(why)
    return finding


def _bypassed(context: Context, fix: Fix | None) -> str | None:
    """Return a function, of those that tests replace, that a fix does not call, or only with CUDA."""
    for edit in fix.edits if fix is not None else ():
        old = context.source.text[edit.start : edit.end]
        attributes = _ATTRIBUTE.findall(old)
        read: set[str] = {name for owner, name in attributes if not _is_library(context.facts, owner)}
        found = [name for name in sorted(read) if context.project.is_patched(context.devices.path, name)]
        new = new_code(edit.new, old) if found else ""  # LibCST takes long to import
        asks_more = new.count("is_available") > old.count("is_available")
        for name in found:
            if asks_more or not re.search(rf"\.{name}\b", new):
                return name
    return None


def _is_library(facts: Facts, owner: str) -> bool:
    """Return whether code names torch itself, or a part of another library: tests replace neither."""
    root, _, rest = owner.partition(".")
    imported = {binding.imported for binding in facts.tree.root.bindings.get(root, ())}
    if not imported or None in imported:
        return False
    of_torch = any(name and name.partition(".")[0] == "torch" for name in imported)
    return not of_torch or (imported == {"torch"} and not rest)


_ATTRIBUTE = re.compile(r"([\w.]*)\.(\w+)")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")


def _stays_compiled(context: Context, node: ast.AST, fix: Fix) -> bool:
    """Return whether TorchScript compiles what a fix inserts: no outer name but torch, no question."""
    facts = context.facts
    if fix.needs:
        return False
    for edit in fix.edits:
        old = context.source.text[edit.start : edit.end]
        new = new_code(edit.new, old)
        for name in {*_NAME.findall(new)}.difference(_NAME.findall(old)):
            found = facts.tree.scope(node).lookup(name)
            if found is None or any(scope.node in context.compiled.functions for scope in found[0].chain()):
                continue
            if name not in facts.torch_names(found[0]):
                return False
        if any(asks in new and asks not in old for asks in ("is_available", "accelerator")):
            return False
    return True


def _unless_impossible(source: Source, finding: Finding) -> Finding:
    """Return a finding without its fix if its code is nested too deeply, or a comment in it would be lost."""
    edits = finding.fix.edits if finding.fix else ()
    if any(is_too_deep(source.text, edit) for edit in edits):
        return finding.unfixed("because the code is nested too deeply")
    if loses_comment(source, edits):
        return finding.unfixed("because the fix would remove a comment; move the comment first")
    return finding


def _without_needless(findings: list[Finding], unsafe_fixes: bool) -> list[Finding]:
    """Drop the findings in code that is right as it is, and whose fix alone would define a device."""
    fixes = [each.fix for each in findings if each.fix and each.is_fixable(unsafe_fixes)]
    counts = Counter(need for fix in fixes for need in fix.needs)
    new = {need for need, count in counts.items() if count == 1 and isinstance(need, Definition)}
    alone = {fix for fix in fixes if fix.optional and not new.isdisjoint(fix.needs)}
    return [each for each in findings if each.fix not in alone]


def _unless_around_stays(source: Source, findings: list[Finding]) -> list[Finding]:
    """Drop the fixes that are left to the code around a finding, where that code is not fixed."""
    if not any(finding.fix and not finding.fix.edits for finding in findings):
        return findings
    changed = [
        (min(edit.start for edit in fix.edits), max(edit.end for edit in fix.edits), fix.why)
        for finding in findings
        if (fix := finding.fix) and fix.edits
    ]

    def checked(finding: Finding) -> Finding:
        if finding.fix is None or finding.fix.edits:
            return finding
        place = source.line_starts[finding.line - 1] + finding.column - 1
        around = [(end - start, why) for start, end, why in changed if start <= place < end]
        if not around:
            return finding.unfixed("because the surrounding code is not fixed")
        _, why = min(around, key=itemgetter(0))
        is_new = why and not finding.fix.why
        return finding.unsafe("the fix for the surrounding code is unsafe") if is_new else finding

    return list(map(checked, findings))


def _in_string(context: Context, string: ast.JoinedStr, finding: Finding) -> Finding:
    """Return a finding for the whole f-string: before Python 3.12 positions inside it are not known."""
    span = context.source.span(string)
    start, end = map(context.source.position, span)
    if finding.fix and all(edit.start <= span[0] and span[1] <= edit.end for edit in finding.fix.edits):
        return Finding(finding.code, finding.message, *start, *end, finding.fix)
    if finding.fix:
        finding = finding.unfixed("because it is inside an f-string; move it out first")
    return Finding(finding.code, finding.message, *start, *end)
