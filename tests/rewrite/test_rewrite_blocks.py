"""Edits of statements: their own indentation, and every comment where it belongs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from textwrap import dedent

import pytest

from devicefix.facts import Facts
from devicefix.files.text import Source, parse, replaced
from devicefix.model import Edit
from devicefix.rewrite.blocks import (
    can_unwrap,
    put_under_guard,
    remove,
    replace_statement,
    unwrap,
    without_branch,
)
from devicefix.rewrite.edits import joined, resolved
from devicefix.rewrite.selfcheck import check

NEWLINES = ["\n", "\r\n", "\r"]


def block(text: str) -> str:
    return dedent(text).removeprefix("\n")


def made(text: str, edits: Callable[[Facts], Iterable[Edit]]) -> str:
    """Return a text with edits made, which have to pass the self-check."""
    source = Source(text.encode())
    facts = Facts.read(text.encode())
    wanted = joined(text, edits(facts))
    changes = resolved(text, wanted)
    output = replaced(text, changes)
    check(source, facts.tree.module, output.encode(), wanted, changes)
    return output


def statements(facts: Facts, kind: type[ast.stmt]) -> list[ast.stmt]:
    found = [node for node in ast.walk(facts.tree.module) if isinstance(node, kind)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def guarded(text: str) -> str:
    """Put every expression statement under `if ok:`."""
    return made(
        text, lambda facts: [put_under_guard(facts, each, "ok") for each in statements(facts, ast.Expr)]
    )


def without_asserts(text: str) -> str:
    return made(text, lambda facts: [remove(facts, each) for each in statements(facts, ast.Assert)])


def without_refusals(text: str) -> str:
    """Take away the branches that raise, or whose `if` has a body that does."""

    def edits(facts: Facts) -> Iterable[Edit]:
        for node in statements(facts, ast.If):
            assert isinstance(node, ast.If)
            for branch in (node.body, node.orelse):
                if branch and isinstance(branch[-1], ast.Raise):
                    yield from without_branch(facts, node, branch)

    return made(text, edits)


def unwrapped(text: str) -> str:
    """Take away the guard `ok`."""

    def edits(facts: Facts) -> Iterable[Edit]:
        for node in statements(facts, ast.If):
            assert isinstance(node, ast.If)
            if ast.unparse(node.test) == "ok":
                yield unwrap(facts, node)

    return made(text, edits)


# -- under a guard -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", NEWLINES)
@pytest.mark.parametrize("indent", ["  ", "    ", "\t", "   "])
def test_a_guard_takes_the_indentation_of_the_file(indent: str, newline: str) -> None:
    before = (
        f"def f():\n{indent}a = 1\n{indent}for a in b:\n{indent}{indent}sync()\n{indent}x()  # why\ny()\n"
    )
    after = (
        f"def f():\n{indent}a = 1\n{indent}for a in b:\n{indent * 2}if ok:\n{indent * 3}sync()\n"
        f"{indent}if ok:\n{indent * 2}x()  # why\nif ok:\n{indent}y()\n"
    )
    assert guarded(before.replace("\n", newline)) == after.replace("\n", newline)


def test_a_guard_without_any_block_in_the_file_has_four_spaces() -> None:
    assert guarded("x()\n") == "if ok:\n    x()\n"


def test_a_guard_in_a_case_takes_the_indentation_of_the_case() -> None:
    before = "match a:\n  case 1:\n    x()\n"
    assert guarded(before) == "match a:\n  case 1:\n    if ok:\n      x()\n"


@pytest.mark.parametrize("indent", ["  ", "    ", "\t"])
def test_a_guard_in_an_unusually_deep_block_takes_the_indentation_of_the_first_block(indent: str) -> None:
    deep = " " * 8
    before = f"def f():\n{indent}y()\nwith a:\n{indent}# with b:\n{deep}x()\n"
    after = (
        f"def f():\n{indent}if ok:\n{indent * 2}y()\n"
        f"with a:\n{indent}# with b:\n{deep}if ok:\n{deep}{indent}x()\n"
    )
    assert guarded(before) == after


def test_a_guard_in_a_file_of_blocks_with_eight_spaces_has_eight() -> None:
    deep = " " * 8
    assert guarded(f"def f():\n{deep}x()\n") == f"def f():\n{deep}if ok:\n{deep * 2}x()\n"


def test_neighbours_share_a_guard_with_their_comments() -> None:
    before = block("""
        def f():
            x()  # one
            y(
                1,  # two
            )
            # three
            z()
    """)
    after = block("""
        def f():
            if ok:
                x()  # one
                y(
                    1,  # two
                )
            # three
            if ok:
                z()
    """)
    assert guarded(before) == after


def test_strings_and_continuations_under_a_guard_keep_their_text() -> None:
    before = 'def f():\n    x("""a\n  b""",\n      1,\n  2)\n    y(a + \\\n  b)\n'
    after = 'def f():\n    if ok:\n        x("""a\n  b""",\n          1,\n  2)\n        y(a + \\\n  b)\n'
    assert guarded(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x(); a = 1\n", "x() if ok else None; a = 1\n"),
        ("a = 1; x()\n", "a = 1; x() if ok else None\n"),
        ("for a in b: x()\n", "for a in b: x() if ok else None\n"),
        ("x();\n", "x() if ok else None;\n"),
    ],
)
def test_an_expression_that_shares_its_line_becomes_a_choice(before: str, after: str) -> None:
    assert guarded(before) == after


# -- without a guard ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", NEWLINES)
@pytest.mark.parametrize("indent", ["  ", "    ", "\t"])
def test_comments_move_with_the_block(indent: str, newline: str) -> None:
    before = (
        f"def f():\n{indent}# above\n{indent}if ok:  # header\n{indent * 2}# inner\n{indent * 2}x()  # why\n"
        f"{indent * 2}# end\n\n{indent * 2}# last\n{indent}# below\n{indent}y()\n"
    )
    after = (
        f"def f():\n{indent}# above\n{indent}# header\n{indent}# inner\n{indent}x()  # why\n"
        f"{indent}# end\n\n{indent}# last\n{indent}# below\n{indent}y()\n"
    )
    assert unwrapped(before.replace("\n", newline)) == after.replace("\n", newline)


def test_inner_lines_keep_their_distance_to_the_block() -> None:
    before = block('''
        if ok:
            x(
                1,
          2)
            s = """
            kept
            """
            y = a + \\
                b
    ''')
    after = block('''
        x(
            1,
          2)
        s = """
            kept
            """
        y = a + \\
                b
    ''')
    assert unwrapped(before) == after


def test_comments_in_the_test_stay_above_the_block() -> None:
    before = "if (  # one\n    ok  # two\n):  # three\n    x()\n"
    assert unwrapped(before) == "# one\n# two\n# three\nx()\n"


def test_a_block_that_ends_the_file_without_a_line_end() -> None:
    assert unwrapped("if ok:\n    x()") == "x()"
    assert unwrapped("if ok:\n    x()\n    # end") == "x()\n# end"


def test_a_block_that_begins_with_a_blank_line() -> None:
    assert unwrapped("a\nif ok:\n\n    # why\n    x()\n") == "a\n# why\nx()\n"


def test_a_function_with_a_decorator_moves() -> None:
    before = "if ok:\n    # why\n    @d\n    def f():\n        pass\n"
    assert unwrapped(before) == "# why\n@d\ndef f():\n    pass\n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [("if ok:\n    x()\n", True), ("if ok: x()\n", False), ("if a:\n    y()\nelif ok:\n    x()\n", False)],
)
def test_only_a_block_on_separate_lines_can_be_unwrapped(text: str, answer: bool) -> None:
    facts = Facts.read(text.encode())
    assert can_unwrap(facts.source, statements(facts, ast.If)[-1]) is answer  # type: ignore[arg-type]


# -- without a branch --------------------------------------------------------------------------------------

BRANCHES = {
    "elif with an else": (
        """
        if a:
            x()
        elif b:  # gone
            # gone
            raise E  # gone
            # gone
        else:  # or else
            y()
            # end
        """,
        """
        if a:
            x()
        else:  # or else
            y()
            # end
        """,
    ),
    "elif with the word else in a string and a comment": (
        """
        if a:
            x()
        elif b:
            raise E("else:")  # else:
        # else: what else
        else:
            y("else")
        """,
        """
        if a:
            x()
        # else: what else
        else:
            y("else")
        """,
    ),
    "elif with an elif": (
        """
        if a:
            x()
        elif b:
            raise E
            # gone

        # stays
        elif c:
            y()
        """,
        """
        if a:
            x()
        # stays
        elif c:
            y()
        """,
    ),
    "the last elif": (
        """
        def f():
          if a:
            x()
            # stays
          elif b:
            raise E
            # gone
          # below
          z()
        """,
        """
        def f():
          if a:
            x()
            # stays
          # below
          z()
        """,
    ),
    "the else of an elif": (
        """
        if a:
            x()
        # about b
        elif (b  # why
              and c):  # header
            y()
            # end
        # gone
        else:  # gone
            # gone
            raise E
            # gone
        z()
        """,
        """
        if a:
            x()
        # about b
        # why
        else:  # header
            y()
            # end
        z()
        """,
    ),
    "an if with an else": (
        """
        # above
        if a:  # gone
            # gone
            raise E
            # gone
        # about the other
        else:  # header

            # inner
            x()
            # end

        # below
        """,
        """
        # above
        # about the other
        # header
        # inner
        x()
        # end

        # below
        """,
    ),
    "an if with an elif": (
        """
        if a:  # gone
            raise E  # gone
        # stays
        elif b:
            x()
        else:
            y()
        """,
        """
        # stays
        if b:
            x()
        else:
            y()
        """,
    ),
    "the else of an if": (
        """
        if a:  # header
            # inner
            x()  # why
            # end
        # gone
        else:
            # gone
            raise E  # gone
            # gone
        # below
        """,
        """
        # header
        # inner
        x()  # why
        # end
        # below
        """,
    ),
    "one line each": (
        """
        if a: x()  # stays
        else: raise E  # gone
        if b: raise E  # gone
        else: y(); z()  # stays too
        """,
        """
        x()  # stays
        y(); z()  # stays too
        """,
    ),
    "an elif on one line": (
        """
        if a: x()
        elif b: raise E; # gone
        else: y()
        """,
        """
        if a: x()
        else: y()
        """,
    ),
    "an if without another branch": (
        """
        x()

        if a:
            raise E
            # gone

        y()
        """,
        """
        x()

        y()
        """,
    ),
    "nested": (
        """
        if a:
            if b:
                raise E  # gone
            else:
                x()  # stays
        else:
            raise E
        """,
        """
        x()  # stays
        """,
    ),
}


@pytest.mark.parametrize("newline", NEWLINES)
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_goes_with_its_comments(name: str, newline: str) -> None:
    before, after = (block(text).replace("\n", newline) for text in BRANCHES[name])
    assert without_refusals(before) == after


# -- removed -----------------------------------------------------------------------------------------------

REMOVALS = {
    "between blank lines": ("a = 1\n\nassert ok\n\nb = 2\n", "a = 1\n\nb = 2\n"),
    "the larger gap stays": ("a = 1\n\n\nassert ok\n\nb = 2\n", "a = 1\n\n\nb = 2\n"),
    "the larger gap below stays": ("a = 1\n\nassert ok\n\n\nb = 2\n", "a = 1\n\n\nb = 2\n"),
    "no blank line below": ("a = 1\n\nassert ok\nb = 2\n", "a = 1\n\nb = 2\n"),
    "first of a block": ("def f():\n    assert ok\n\n    x()\n", "def f():\n    x()\n"),
    "below a docstring": (
        'def f():\n    """A."""\n    assert ok\n\n    x()\n',
        'def f():\n    """A."""\n\n    x()\n',
    ),
    "last of a block": ("def f():\n    x()\n\n    assert ok\n\n\ny()\n", "def f():\n    x()\n\n\ny()\n"),
    "last of the file": ("x()\n\nassert ok\n", "x()\n"),
    "without a line end": ("x()\nassert ok", "x()\n"),
    "its comment": ("a = 1\n# there must be one\nassert ok  # why\n\nb = 2\n", "a = 1\n\nb = 2\n"),
    "a comment for more": ("# both\nassert ok\nb = 2\n", "# both\nb = 2\n"),
    "the header of the file": ("# A program\nassert ok\n\nb = 2\n", "# A program\nb = 2\n"),
    "a cell of a script": ("a = 1\n# %% next\nassert ok\n\nb = 2\n", "a = 1\n# %% next\n\nb = 2\n"),
    "several lines": ("x()\nassert ok, (\n    'a'  # b\n)\ny()\n", "x()\ny()\n"),
    "among others": ("a = 1; assert ok; b = 2\n", "a = 1; b = 2\n"),
    "before others": ("assert ok; b = 2  # c\n", "b = 2  # c\n"),
    "after others": ("a = 1; assert ok  # c\n", "a = 1  # c\n"),
    "with a semicolon": ("x()\nassert ok;\ny()\n", "x()\ny()\n"),
    "a continued line": ("a = 1; \\\n  assert ok\n", "a = 1\n"),
    "the body of an if": ("x()\nif a:\n    assert ok\ny()\n", "x()\ny()\n"),
    "the body on the line of an if": ("x()\nif a: assert ok\ny()\n", "x()\ny()\n"),
    "the body of an if that calls": ("if a():\n    assert ok  # why\n", "if a():\n    pass\n"),
    "the body of an if with an else": (
        "if a:\n    assert ok\nelse:\n    x()\n",
        "if a:\n    pass\nelse:\n    x()\n",
    ),
    "the body of an else": ("if a:\n    x()\n\n# why\nelse:\n    assert ok\ny()\n", "if a:\n    x()\ny()\n"),
    "the body of an elif": (
        "if a:\n    x()\nelif b:\n    assert ok\n    # gone\ny()\n",
        "if a:\n    x()\ny()\n",
    ),
    "ifs in ifs": (
        "def f():\n    if a:\n        if b:\n            assert ok\n    x()\n",
        "def f():\n    x()\n",
    ),
    "all of a block": (
        "def f():\n    if a:\n        assert ok\n        assert ok\n    assert ok\n",
        "def f():\n    pass\n",
    ),
    "a function": ("def f():\n    # why\n    assert ok  # gone\n", "def f():\n    # why\n    pass\n"),
    "a loop": ("for a in b:\n  assert ok\n", "for a in b:\n  pass\n"),
}  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", REMOVALS)
def test_a_statement_goes_with_its_lines(name: str, newline: str) -> None:
    before, after = (text.replace("\n", newline) for text in REMOVALS[name])
    assert without_asserts(before) == after


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        ("a = True\nb()\n", "f('x')", "f('x')\nb()\n"),
        ("if c:\n    a = True  # why\nb()\n", "f(); g()", "if c:\n    f(); g()  # why\nb()\n"),
        ("b(); a = True; c()\n", "del a", "b(); del a; c()\n"),
    ],
)
def test_a_statement_is_replaced(before: str, code: str, after: str) -> None:
    source = Source(before.encode())
    module = parse(before)
    statement = next(node for node in ast.walk(module) if isinstance(node, ast.Assign))
    edits = joined(before, [replace_statement(source, statement, code)])
    changes = resolved(before, edits)
    assert replaced(before, changes) == after
    check(source, module, after.encode(), edits, changes)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if (\n    a\n    and b\n):\n    x()\n", "if (\n    a\n    and b\n    and ok\n):\n    x()\n"),
        ("if f(\n    a\n):\n    x()\n", "if f(\n    a\n) and ok:\n    x()\n"),
    ],
)
def test_a_guard_joins_a_test_of_several_lines(before: str, after: str) -> None:
    assert guarded(before) == after
