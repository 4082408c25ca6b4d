"""`devicefix.facts.comments`: what `# noqa` comments silence, and how they are added and removed."""

from __future__ import annotations

import pytest

from devicefix.facts.comments import UNUSED, add, comment_line, silenced, unused
from devicefix.files.text import Source, parse
from devicefix.model import Finding


def finding(line: int = 1, code: str = "DF101", end: int | None = None) -> Finding:
    return Finding(code, "message", line, 1, end or line, 2)


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# noqa", True),
        ("#NOQA", True),
        ("# noqa: DF101", True),
        ("# noqa:df101", True),
        ("# noqa: E501, DF101", True),
        ("# noqa: E501 DF101", True),
        ("# noqa: DF102", False),
        ("# noqa: reason", False),
        ("# noqa : DF102", True),
        ("# type: ignore # noqa", True),
        ("# noqalify", False),
        ("", False),
    ],
)
def test_silenced(comment: str, expected: bool) -> None:
    assert silenced(Source(f"x.cuda()  {comment}\n".encode()), finding()) is expected


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("f(\n  x,\n)  # noqa\n", 1, True),
        ("f(\n  x,  # noqa\n)\n", 1, False),
        ("y\nf(\n  x,\n)  # noqa\n", 1, False),
    ],
)
def test_first_or_last_line(text: str, line: int, expected: bool) -> None:
    source = Source(text.encode())
    assert silenced(source, finding(line, end=line + 2), parse(source.text)) is expected


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("x\ny\n", 1, 1),
        ("x = '''a\nb\nc'''\ny\n", 1, 3),
        ("x = '''a\nb\nc'''\ny\n", 2, 3),
        ("x = '''a'''\ny\n", 1, 1),
        ("x = 1 + \\\n  2\n", 1, 2),
        ("x = 1  # \\\ny\n", 1, 1),
        ("x = f'''a\n{b}'''\n", 1, 2),
    ],
)
def test_comment_line(text: str, line: int, expected: int) -> None:
    source = Source(text.encode())
    assert comment_line(source, parse(source.text), line) == expected


@pytest.mark.parametrize(
    ("before", "codes", "after"),
    [
        ("x()\n", ["DF101"], "x()  # noqa: DF101\n"),
        ("x()\n", ["DF102", "DF101"], "x()  # noqa: DF101, DF102\n"),
        ("x()  # why\n", ["DF101"], "x()  # why  # noqa: DF101\n"),
        ("x()  # noqa: E501\n", ["DF101"], "x()  # noqa: DF101, E501\n"),
        ("x()  # noqa: E501 # why\n", ["DF101"], "x()  # noqa: DF101, E501 # why\n"),
        ("x()\r\n", ["DF101"], "x()  # noqa: DF101\r\n"),
        ("x()", ["DF101"], "x()  # noqa: DF101"),
        ("x = '''a\nb'''\n", ["DF101"], "x = '''a\nb'''  # noqa: DF101\n"),
    ],
)
def test_add(before: str, codes: list[str], after: str) -> None:
    added = add(before.encode(), [finding(code=code) for code in codes])
    assert (added.data.decode(), added.lines, added.left) == (after, 1, [])


@pytest.mark.parametrize("code", ["x(\n", "\\\n"])
def test_what_cannot_be_silenced_is_left(code: str) -> None:
    added = add(code.encode(), [finding()])
    assert (added.data.decode(), added.lines, len(added.left)) == (code, 0, 1)


def test_unused_is_never_silenced() -> None:
    assert add(b"x()\n", [finding(code=UNUSED)]).data == b"x()\n"


@pytest.mark.parametrize(
    ("comment", "message", "after"),
    [
        ("x()  # noqa: DF101", None, None),
        ("x()  # noqa: DF102", "unused `noqa`: DF102 is not reported here", "x()"),
        ("x()  # noqa: DF101, DF102", "unused `noqa`: DF102 is not reported here", "x()  # noqa: DF101"),
        (
            "x()  # noqa: DF102, DF104, DF999",
            "unused `noqa`: DF102 and DF104 are not reported here, and no rule has the code 'DF999'",
            "x()",
        ),
        ("x()  # noqa: DF102 # why", "unused `noqa`: DF102 is not reported here", "x()  # why"),
        ("x()  # why # noqa: DF102", "unused `noqa`: DF102 is not reported here", "x()  # why"),
        ("x()  # noqa: DF103", None, None),
        ("x()  # noqa: E501, DF103", None, None),
        ("x()  # noqa: DF109", "no rule has the code 'DF109'", "x()"),
        ("x()  # noqa: DF102, DF001", None, None),
        ("x()  # noqa", None, None),
    ],
)
def test_unused(comment: str, message: str | None, after: str | None) -> None:
    source = Source(f"{comment}\n".encode())
    rules = {"DF101": True, "DF102": True, "DF103": False, "DF104": True}
    found = list(unused(source, parse(source.text), [finding()], rules))
    assert len(found) == (message is not None)
    if message is not None and after is not None:
        assert message in found[0].message
        fix = found[0].fix
        assert fix is not None
        (edit,) = fix.edits
        assert isinstance(edit.new, str)
        assert f"{source.text[: edit.start]}{edit.new}{source.text[edit.end :]}".rstrip("\n") == after


def test_a_separate_line_goes_with_its_comment() -> None:
    source = Source(b"y\n# noqa: DF102\nx()\n")
    (found,) = unused(source, parse(source.text), [], {"DF102": True})
    assert found.fix is not None
    (edit,) = found.fix.edits
    assert source.text[: edit.start] + source.text[edit.end :] == "y\nx()\n"
