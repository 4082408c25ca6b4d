"""Count the findings without a safe fix by rule and reason, and list those whose message gives no reason."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from corpus_compare import Version

_REASON = re.compile(r" \((unsafe: .*|not fixed .*)\)\Z")
# An edit that seems easy: why is it not made?
_EASY = re.compile(r"; (use|call|select|run|pass)\b[^;]* only if CUDA is available\Z")
_VARIABLE = re.compile(r"`[^`]*`|line \d+")


class Reported(NamedTuple):
    """A finding: `safety` is the fix's, or empty if there is none."""

    code: str
    message: str
    safety: str
    place: str = ""


def run(version: Version, folders: list[Path]) -> int:
    """Print the table of reasons over folders of packages, and return how many findings have none."""
    packages = [package for folder in folders for package in sorted(folder.iterdir())]
    found = [each for package in packages for each in _check(version, package)]
    unsafe = [each for each in found if each.safety != "safe"]
    counts = Counter((each.code, each.safety or "no fix", reason(each)) for each in unsafe)
    for (code, safety, why), count in counts.most_common():
        print(f"{count:6}  {code}  {safety:7}  {why}")
    missing = list(without_reason(found))
    for each in missing:
        print(f"no reason: {each.place} {each.code} {each.message}")
    print(f"{len(found)} findings, {len(unsafe)} without a safe fix, {len(missing)} without a reason")
    return len(missing)


def _check(version: Version, package: Path) -> Iterator[Reported]:
    done = version.run("check", "--output-format=json", str(package))
    for each in json.loads(done.stdout or "[]"):
        safety = each["fix"]["applicability"] if each["fix"] else ""
        place = f"{each['filename']}:{each['location']['row']}"
        yield Reported(each["code"], each["message"], safety, place)


def reason(finding: Reported) -> str:
    """Return why a finding has no safe fix, or else what a person should do, without names and numbers."""
    found = _REASON.search(finding.message)
    text = found[1] if found else f"by hand: {finding.message.rpartition('; ')[2]}"
    return _VARIABLE.sub("…", text)


def without_reason(findings: Iterable[Reported]) -> Iterator[Reported]:
    """Yield the findings without a safe fix whose messages don't say why.

    The message of an unsafe fix has a reason in parentheses. That of a finding without a fix has one, too,
    unless no finding with this message ever has a fix: then it says what a person should do. An edit that
    seems easy needs a reason in any case, but for libraries (DF902): their code needs another path as well.
    """
    fixed: defaultdict[str, set[str]] = defaultdict(set)
    findings = list(findings)
    for each in findings:
        if each.safety:
            fixed[each.code].add(_plain(each.message))
    for each in findings:
        if each.safety == "safe" or _REASON.search(each.message):
            continue
        is_easy = each.code != "DF902" and _EASY.search(each.message)
        if each.safety or is_easy or _plain(each.message) in fixed[each.code]:
            yield each


def _plain(message: str) -> str:
    """Return a message without its reason, names and numbers."""
    return _VARIABLE.sub("…", _REASON.sub("", message))
