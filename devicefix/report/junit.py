"""JUnit XML: a suite for each file, a failed test for each finding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from xml.etree import ElementTree as xml

from devicefix.config.printable import printable
from devicefix.model import Outcome
from devicefix.report.checked import Checked, File, absolute
from devicefix.report.wording import place

PACKAGE = "org.devicefix"
COUNTED = ("tests", "skipped", "failures", "errors")


def render(checked: Checked) -> Iterator[str]:
    """Yield the text in pieces."""
    root = xml.Element("testsuites", name="devicefix")
    for outcome in checked.failed:
        _error(root, outcome)
    for file in checked.files:
        _failures(root, file)
    if not len(root):  # some readers take a report without tests for a failed run
        suite = _suite(root, "devicefix", tests=1)
        xml.SubElement(suite, "testcase", name="No errors found", classname="devicefix")
    for kind in COUNTED:
        root.set(kind, str(sum(int(suite.get(kind, "0")) for suite in root)))
    xml.indent(root)
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n{xml.tostring(root, encoding="unicode")}\n'


def _failures(root: xml.Element, file: File) -> None:
    """Add the suite of a file with findings."""
    suite = _suite(root, _name(file.path), tests=len(file.findings), failures=len(file.findings))
    for finding in file.findings:
        test = _test(suite, file.path, f"{PACKAGE}.{finding.code}")
        test.set("line", str(file.placed(finding).line))
        message = printable(finding.message)
        failure = xml.SubElement(test, "failure", message=message, type=finding.code)
        where = f"line {finding.line}, col {finding.column}" if finding.cell is None else place(finding)
        failure.text = f"{where}, {message}"


def _error(root: xml.Element, outcome: Outcome) -> None:
    """Add the suite of a file that could not be checked."""
    test = _test(_suite(root, _name(outcome.path), tests=1, errors=1), outcome.path, f"{PACKAGE}.error")
    xml.SubElement(test, "error", message=printable(outcome.error or ""), type="error")


def _suite(root: xml.Element, name: str, **counts: int) -> xml.Element:
    numbers = {kind: str(counts.get(kind, 0)) for kind in COUNTED}
    return xml.SubElement(root, "testsuite", {"name": name, "package": PACKAGE, **numbers})


def _test(suite: xml.Element, path: str, name: str) -> xml.Element:
    stem = os.path.splitext(_name(path))[0]
    return xml.SubElement(suite, "testcase", name=name, classname=stem, file=printable(path))


def _name(path: str) -> str:
    """Return the absolute path, with the characters escaped that XML cannot hold."""
    return printable(absolute(path))
