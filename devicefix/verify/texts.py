"""The cause of an error that its text shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from devicefix.verify import known
from devicefix.verify.case import Case
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.places import place as shown
from devicefix.verify.places import source
from devicefix.verify.startup import is_of_shell
from devicefix.verify.trials import alike
from devicefix.verify.tried import DEVICES, wrong_fix

_LOW_PRECISION = re.compile(r"(?i)half|bfloat16|float16")
_DTYPES = re.compile(r"same dtype|scalar type|Input type|but got|but found|does not match")
_NAME = re.compile(r"name '(\w+)' is not defined|variable '(\w+)'|no attribute '(\w+)'|import name '(\w+)'")
_LOOKS_FOR_FILE = re.compile(r"^assert\b.*\b(exists|is_?file|is_?dir)\(")
_SUBMODULE = re.compile(r"^\s*path\s*=\s*(.*\S)", re.M)
_ON_IMPORT = ("DF417", "DF902")  # of a library that needs CUDA
_MODULE = re.compile(r"No module named '([\w.]+)'")


def syntax(case: Case) -> Explanation | None:
    """Explain a file that does not parse."""
    if case.run.failure is None or not {"SyntaxError"} & {case.failure.kind, *case.failure.bases}:
        return None
    if not case.frames or case.raises or not case.frames[0].file.endswith((".py", ".pyw")):
        return None
    at = case.frames[0]
    if os.path.realpath(at.file) not in case.program.rewritten:
        evidence = f"{shown(at)} cannot be parsed, and devicefix does not change this file"
        return Explanation(Cause.ORIGINAL, "correct the original file first", (evidence,))
    return wrong_fix(case, f"{shown(at)} cannot be parsed after the rewrite")


def name_of_a_fix(case: Case) -> Explanation | None:
    """Explain an unknown name that only the rewritten file has."""
    name = next(filter(None, match.groups()), "") if (match := _match(case, _NAME)) else ""
    if not name or not case.frames:
        return None
    at = case.frames[0]
    new = case.program.rewritten.get(os.path.realpath(at.file))
    if new is None or name in _names(Path(at.file)) or name not in _names(Path(new.path)):
        return None
    return wrong_fix(case, f"{shown(at)} uses `{name}`, which exists only in the rewritten file")


def _match(case: Case, pattern: re.Pattern[str]) -> re.Match[str] | None:
    return pattern.search(case.failure.error) if case.run.failure else None


def _names(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""  # a cell is no file
    return set(re.findall(r"\w+", text))


def text(case: Case) -> Explanation | None:
    """Explain an error by its text."""
    if case.run.failure is None:
        return None
    groups = ("triton", "memory") if case.raises else ("triton", "memory", "cpu", "beside")
    texts = (f"{case.failure.error}\n{case.failure.message}", *case.failure.before)
    for message in texts:
        if found := known.first(message, *groups):
            if found.cause is Cause.TRITON and case.task.triton_interpret:
                continue
            return _of(case, found)
    return _import(case) or _surroundings(case)


def _of(case: Case, found: known.Known) -> Explanation:
    at = f" ({shown(case.frames[0])})" if case.frames else ""
    evidence = (f"{found.evidence}: {case.failure.error}{at}",)
    if found.cause is Cause.CPU and (ties := case.ties(case.frames[:1])):
        advice = ties[0].advice if ties[0].finding.fix else found.advice
        return Explanation(Cause.TIE, advice, evidence, ties)
    return Explanation(found.cause, found.advice, evidence)


def _import(case: Case) -> Explanation | None:
    found = known.first(case.failure.error, "package")
    name = match[1] if (match := _match(case, _MODULE)) else ""
    if found is None or _is_own(case, name or case.failure.error):
        return None
    explanation = _of(case, found)
    if is_of_shell(case.task.command):
        advice = "install the package, or first activate the program's environment, since `PATH` decides"
        explanation = replace(explanation, advice=f"{advice} which Python a command uses")
    if ties := tuple(tie for tie in case.ties(case.frames[:1]) if tie.finding.code in _ON_IMPORT):
        return Explanation(Cause.TIE, ties[0].advice, explanation.evidence, ties)
    if "cuda" in name.lower():
        advice = "import it only if `torch.cuda.is_available()` is true, and add a CPU path"
        return Explanation(Cause.CPU, advice, (*explanation.evidence, f"{name} seems to need CUDA"))
    if empty := next(_empty_submodules(case), None):
        evidences = (*explanation.evidence, f"the git submodule `{empty}` is empty")
        return replace(explanation, advice="run `git submodule update --init`", evidence=evidences)
    return explanation


def _empty_submodules(case: Case) -> Iterator[str]:
    """Yield the git submodules of the program whose files are not there."""
    for root in map(Path, case.program.roots):
        listed = root / ".gitmodules"
        text = listed.read_text(encoding="utf-8", errors="replace") if listed.is_file() else ""
        yield from (path for path in _SUBMODULE.findall(text) if not any((root / path).glob("*")))


def _is_own(case: Case, text: str) -> bool:
    """Return whether a module, or the file that an error names, is of the program itself."""
    top = text.partition(".")[0]
    beside = [os.path.dirname(case.frames[0].file)] if case.frames else []
    for root in (*case.program.roots, *beside):
        if any(os.path.exists(os.path.join(root, top + end)) for end in (".py", "")) or f"({root}" in text:
            return True
    return False


def _surroundings(case: Case) -> Explanation | None:
    kinds = {case.failure.kind, *case.failure.bases}
    for message in (case.failure.error, *(f"{base}: {case.failure.message}" for base in kinds)):
        found = known.first(message, "environment", "data")
        if found is not None and (not DEVICES.search(case.failure.message) or _is_alike(case)):
            return _of(case, found)
    if case.raises and _LOOKS_FOR_FILE.search(source(case.frames[0])):
        return _of(case, known.kinds("data")[0])
    return None


def _is_alike(case: Case) -> bool:
    """Return whether CUDA does not change an error: the name of a file may have the device in it."""
    return not case.trials.refused and alike(case.run, case.trials.original)


def precision(case: Case) -> Explanation | None:
    """Explain a mixture of dtypes that autocast for CUDA allows, in a file where it is left."""
    if case.run.failure is None or not (_match(case, _LOW_PRECISION) and _match(case, _DTYPES)):
        return None
    ties = tuple(tie for tie in case.ties_in(at.file for at in case.frames) if tie.finding.code == "DF407")
    evidence = f"CUDA autocast is off on a CPU, and the dtypes differ: {case.failure.error}"
    return Explanation(Cause.TIE, ties[0].advice, (evidence,), ties) if ties else None
