"""The self-check: planted faults, whatever their cause, must not reach a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

import pytest
from helpers import apply, runner

from devicefix.cli import main
from devicefix.config.settings import Settings
from devicefix.engine import fix
from devicefix.engine.file import check_file
from devicefix.facts.bound import Bound
from devicefix.facts.project import Project, ProjectFile
from devicefix.files.text import Change, Source, replaced
from devicefix.model import Edit, Effect, SelfCheckError
from devicefix.rewrite.edits import joined, resolved
from devicefix.rewrite.selfcheck import check, check_names, loses_comment

BEFORE = """\
import torch

limit = (1)  # why


def move(x, c):
    # there
    a = '''
  kept'''
    x = x.cuda(); save(x)
    if c:
        log(x)
        x.cuda()
    return [a, x]
"""
GUARD = Effect(added=("If",), deeper=True)


def passes(before: str, *edits: Edit, after: str | None = None) -> bool:
    """Return whether a text passes: the one that edits make, or another."""
    wanted = joined(before, edits)
    changes = resolved(before, wanted)
    output = replaced(before, changes) if after is None else after
    try:
        check(Source(before.encode()), ast.parse(before), output.encode(), wanted, changes)
    except SelfCheckError:
        return False
    return True


def moves(text: str) -> list[Edit]:
    return [Edit(*match.span(), "x.to(device)") for match in re.finditer(r"x\.cuda\(\)", text)]


def edit(before: str, old: str, new: str, effect: Effect | None = None) -> Edit:
    start = before.index(old)
    return Edit(start, start + len(old), new, effect=effect or Effect())


# -- outside of the edits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_right_fixes_pass(newline: str) -> None:
    before = BEFORE.replace("\n", newline)
    assert passes(before, *moves(before))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param("if f(x.cuda()): \\\n  pass\n", id="a continued head"),
        pytest.param(
            "try:\n    pass\nexcept (A,\n    x.cuda()) as e:  # e\n    pass\n", id="a head of two lines"
        ),
        pytest.param(
            "class C:\n    @f(x.cuda())\n  # why\n    @a\n    def g(self):\n        pass\n", id="decorators"
        ),
        pytest.param("match x.cuda():\n    case 1 if (\n x.cuda()):\n        pass\n", id="a case"),
        pytest.param('y = f\'{a!r:>{b}} {{}}\', x.cuda(), """\n#\n""", \'é\', x.cuda() - 1\n', id="strings"),
    ],
)
def test_a_head_with_an_edit_passes(before: str, newline: str) -> None:
    before = before.replace("\n", newline)
    assert passes(before, *moves(before))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("(1)", "1", id="a bracket"),
        pytest.param("  # why", "", id="a comment"),
        pytest.param("    # there\n", "", id="a line of comment"),
        pytest.param("[a, x]", "[a]", id="a neighbour below"),
        pytest.param("save(x)", "save(y)", id="a neighbour on the line"),
        pytest.param("limit", "limits", id="a neighbour above"),
        pytest.param("  kept", " kept", id="a string of several lines"),
        pytest.param("\n\n\n", "\n\n", id="a blank line"),
        pytest.param("(1)  # why\n", "(1)  # why\r\n", id="a line end"),
        pytest.param("\n    return", "\n        return", id="the next statement's indentation"),
        pytest.param("        x.to(device)\n", "    x.to(device)\n", id="its own indentation"),
        pytest.param("import torch\n", "import torch\n\ndevice = 0\n", id="an insertion"),
        pytest.param(
            "        log(x)\n        x.to(device)\n", "        x.to(device)\n        log(x)\n", id="order"
        ),
        pytest.param("        log(x)\n", "        log(x)\n        log(x)\n", id="a line twice"),
    ],
)
def test_a_fault_outside_of_the_edits_is_found(old: str, new: str) -> None:
    edits = moves(BEFORE)
    after = apply(BEFORE, edits)
    assert old in after
    assert not passes(BEFORE, *edits, after=after.replace(old, new, 1))


def test_no_character_can_be_lost_or_doubled() -> None:
    edits = moves(BEFORE)
    after = apply(BEFORE, edits)
    for at in range(len(after)):
        for changed in (after[:at] + after[at + 1 :], after[: at + 1] + after[at:]):
            assert changed == after or not passes(BEFORE, *edits, after=changed), changed


# -- inside of the edits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("x.cuda(); save", "x.to(device)#; save", id="a comment that swallows the rest"),
        pytest.param("x.cuda()\n    return", "x.to(device) + \\\n    return", id="what does not parse"),
        pytest.param("x.cuda()\n    return [a, x]", "x.to((device,\n    [a, x]))", id="an open bracket"),
        pytest.param("x.cuda()\n    return [a, x]", "x.to(device) + \\\n    [a, x]", id="a continuation"),
        pytest.param("x.cuda()\n    return [a, x]", "'''''\n    return [a, x]\n''''", id="an open string"),
        pytest.param("        x.cuda()\n", "    x.to(device)\n", id="out of its block"),
        pytest.param("        x.cuda()\n", "", id="lost"),
        pytest.param("        x.cuda()\n", "        x.to(device)\n        x.to(device)\n", id="doubled"),
        pytest.param("x.cuda()\n    return", "x.to(device)\n        return", id="the next one pulled in"),
        pytest.param("x.cuda()\n", "x = x.to(device)\n", id="another kind of statement"),
        pytest.param(
            "x = x.cuda(); save(x)", "x = x.to(device)\n    save(x)\n    save(x)", id="its neighbour doubled"
        ),
    ],
)
def test_a_fault_inside_an_edit_is_found(old: str, new: str) -> None:
    assert not passes(BEFORE, edit(BEFORE, old, new))


def test_what_is_between_two_edits_is_kept() -> None:
    before = "f(x.cuda(), kept, y.cuda())\n"
    first, second = "x.cuda()", "y.cuda()"
    assert passes(before, edit(before, first, "x.to(d)"), edit(before, second, "y.to(d)"))
    assert not passes(before, edit(before, first, "'''x"), edit(before, second, "y'''"))
    assert not passes(before, edit(before, first, "x)\n#"), edit(before, second, "y\n(y"))


def test_a_branch_must_not_change() -> None:
    before = "if a:\n    x.cuda()\n    y()\n"
    assert not passes(before, edit(before, "x.cuda()", "x.to(d)\nelse:"))
    assert not passes(before, edit(before, "x.cuda()\n", "x.to(d)\nelse:\n"))
    assert not passes(before, edit(before, "x.cuda()\n    ", "x.to(d)\n"))


@pytest.mark.parametrize("handler", ["except E", "else", "finally"])
def test_a_clause_must_not_appear_or_vanish(handler: str) -> None:
    other = "" if handler == "except E" else "else:\n    z()"
    before = f"try:\n    x.cuda()\n    y()\nexcept D:\n    pass\n{other}"
    assert not passes(before, edit(before, "x.cuda()\n", f"x.to(d)\n{handler}:\n"))


# -- effects that edits declare ----------------------------------------------------------------------------


def test_insertions_and_guards_pass() -> None:
    before = "import torch\nwith a:\n    x.step()\nx.cuda()\n"
    insertion = Edit(12, 12, "\nok = ask()", effect=Effect(added=("Assign",)))
    assert passes(before, insertion, edit(before, "x.cuda()", "if ok:\n    x.cuda()", GUARD))
    assert not passes(before, insertion, edit(before, "x.cuda()", "if ok:\n    x.cuda()"))
    assert not passes(before, insertion, edit(before, "x.cuda()", "while ok:\n    x.cuda()", GUARD))
    assert not passes(before, insertion, edit(before, "x.cuda()", "if ok: pass\nx.cuda()", GUARD))


@pytest.mark.parametrize("end", ["", "\n", "  # end", "\n# end"])
def test_an_insertion_at_the_end_passes(end: str) -> None:
    before = f"x = 1\ny = 2{end}"
    insertion = Edit(len(before), len(before), "\nok = 1", effect=Effect(added=("Assign",)))
    assert passes(before, insertion)
    assert not passes(before, insertion, after=f"x = 1\ny = 3{end}\nok = 1")


def test_a_statement_must_not_come_under_the_guard_of_an_inner_block() -> None:
    before = "with a:\n    x.cuda()\ny.cuda()\n"
    inner = edit(before, "x.cuda()", "if ok:\n        x.cuda()", GUARD)
    assert passes(before, inner, edit(before, "y.cuda()", "if ok:\n    y.cuda()", GUARD))
    assert not passes(before, inner, edit(before, "\ny.cuda()", "\n    y.cuda()", Effect(deeper=True)))
    assert not passes(before, inner, edit(before, "\ny.cuda()", "\n        y.cuda()"))


UNWRAP = """\
if ok:
    # kept
    s = '''a
    b'''
    if c:
        x()
else:
    # gone
    raise E
z()
"""
UNWRAPPED = "# kept\ns = '''a\n    b'''\nif c:\n    x()"


@pytest.mark.parametrize(
    ("old", "new", "right"),
    [
        pytest.param("# kept", "# kept", True, id="right"),
        pytest.param("# kept\n", "", False, id="a lost comment"),
        pytest.param("# kept\n", "# kept # too\n", False, id="a changed comment"),
        pytest.param("# kept\n", "# kept\n# kept\n", False, id="a comment twice"),
        pytest.param("# kept\n", "# kept\n# gone\n", False, id="the comment of the other branch"),
        pytest.param("\n    b", "\nb", False, id="a changed string"),
        pytest.param("    x()", "x()", False, id="a dedent"),
        pytest.param("    x()", "    y()", False, id="another call"),
        pytest.param("if c:\n    x()", "if c:\n    x()\n    x()", False, id="a line twice"),
        pytest.param("if c:\n    x()", "x()", False, id="a lost header"),
        pytest.param("if c:", "if d:", False, id="another header"),
        pytest.param("if c:\n    x()", "if c:\n    x()\nelse:", False, id="a header too many"),
        pytest.param("s = ", "if ok:\n  s = ", False, id="under another guard"),
    ],
)
def test_the_block_of_a_guard_that_goes(old: str, new: str, right: bool) -> None:
    end = UNWRAP.index("\nz()")
    effect = Effect(removed=((0, 2), (UNWRAP.index("else"), end)))
    assert old in UNWRAPPED
    assert passes(UNWRAP, Edit(0, end, UNWRAPPED.replace(old, new), effect=effect)) is right


def test_what_is_not_declared_must_stay() -> None:
    before = "if a:\n    y()  # why\n    x()\nz()\n"
    line = "    y()  # why\n"
    span = before.index(line), before.index(line) + len(line)
    assert passes(before, Edit(*span, "", effect=Effect(removed=(span,))))
    assert not passes(before, Edit(*span, ""))
    assert not passes(before, Edit(*span, "", effect=Effect(removed=((span[0], span[1] - 7),))))
    assert not passes(before, Edit(span[0], before.index("z"), "", effect=Effect(removed=(span,))))


def test_effects_nest() -> None:
    before = "if ok:\n    assert a  # gone\n    x()\nz()\n"
    inner_span = 11, before.index("x()")
    inner = Edit(*inner_span, "", effect=Effect(removed=(inner_span,)))
    outer = Edit(0, before.index("\nz"), lambda text: text[11:], effect=Effect(removed=((0, 2),)))
    assert passes(before, inner, outer)
    assert not passes(before, outer)


MOVED = """\
if ok:
    from a import b
    def f(x):
        global g
        return (x)
    try:
        y = h(b.cuda(), 1)
    except E as e:
        pass
    else:
        z()
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("b.to(d)", "b.to(d)", id="right"),
        pytest.param("from a", "from c", id="the module of an import"),
        pytest.param("def f", "def g", id="the name of a function"),
        pytest.param("global g", "global h", id="a global name"),
        pytest.param("(x)\n", "x\n", id="a bracket"),
        pytest.param("as e", "as f", id="the name of an exception"),
        pytest.param("else:", "finally:", id="a clause"),
        pytest.param("b.to(d), 1", "b.to(d)", id="a neighbour of an inner edit"),
        pytest.param("    z()\n", "    pass\nz()\n", id="a statement that leaves its block"),
    ],
)
def test_a_fault_in_a_block_that_moves_is_found(old: str, new: str) -> None:
    def moved(text: str) -> str:
        after = dedent(text.removeprefix("if ok:\n"))
        assert old in after
        return after.replace(old, new)

    whole = Edit(0, len(MOVED), moved, effect=Effect(removed=((0, 2),)))
    assert passes(MOVED, whole, edit(MOVED, "b.cuda()", "b.to(d)")) is (old == new)


@pytest.mark.parametrize("operator", ["-", "and", "not in"])
def test_an_operator_between_two_edits_is_kept(operator: str) -> None:
    before = f"f(x.cuda() {operator} y.cuda())\n"
    assert passes(before, edit(before, "x.cuda()", "x"), edit(before, "y.cuda()", "y"))
    assert not passes(before, edit(before, "x.cuda()", "x, '''"), edit(before, "y.cuda()", "''', y"))


def test_a_copy_in_an_edit_does_not_replace_what_is_next_to_it() -> None:
    before = "f(x.cuda(), kept, y.cuda())\n"
    assert not passes(before, edit(before, "x.cuda()", "'''x"), edit(before, "y.cuda()", "''', kept, y, z"))


def test_an_edited_statement_ends_where_its_edit_does() -> None:
    before = "def f():\n    return x.cuda()\n"
    assert passes(before, edit(before, "x.cuda()", "x"))
    assert not passes(before, edit(before, "x.cuda()", ""))
    assert not passes(before, edit(before, "x.cuda()", "x  "))


def test_an_attribute_next_to_an_edit_is_kept() -> None:
    before = "f(x.cuda().grad)\n"
    assert not passes(before, edit(before, "x.cuda()", "x.to(d)#"), after="f(x.to(d)#.grad)\n)\n")
    assert not passes(before, edit(before, "x.cuda()", "x.to(d))#"))


def test_an_elif_takes_the_place_of_its_if() -> None:
    before = "if a:\n    x()\nelif b:\n    y()\nelse:\n    z()\n"
    start, after = 0, before.index("elif")
    cut = Edit(start, after, "", effect=Effect(removed=((start, after),)))
    assert passes(before, cut, edit(before, "elif", "if"))
    assert not passes(before, cut, edit(before, "elif", "while"))
    assert not passes(before, cut, edit(before, "elif", "if c:\n    if"))
    assert not passes(before, cut, edit(before, "elif", "x(); \nif"))


def test_a_statement_is_in_the_body_of_its_guard() -> None:
    before = "x.cuda()\ny()\n"
    both = Effect(added=("If", "Pass"), deeper=True)
    assert passes(before, edit(before, "x.cuda()", "if ok:\n    x.cuda()", GUARD))
    assert not passes(before, edit(before, "x.cuda()", "if ok: pass\nelse: x.cuda()", both))
    assert not passes(before, edit(before, "x.cuda()", "if ok:\n    y.cuda()", GUARD))


def test_an_insertion_adds_only_what_it_declares() -> None:
    before = "import torch\nx = 1\n"
    for effect, right in (
        (Effect(added=("Assign",)), True),
        (Effect(), False),
        (Effect(added=("Import",)), False),
    ):
        assert passes(before, Edit(12, 12, "\nok = 1", effect=effect)) is right


# -- comments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "lost"),
    [
        ("g(  # one\n  '# two')  # three", False),
        ("g('# two')  # three", True),
        ("g(  # one\n  '# two')", True),
        ("g(  # one\n)  # three", False),
        ("g(  # One\n)  # three", True),
    ],
)
def test_comments_in_an_expression(new: str, lost: bool) -> None:
    before = "x = (f(  # one\n  '# two')  # three\n)\n"
    change = edit(before, before[5:-3], new)
    assert loses_comment(Source(before.encode()), [change]) is lost


def test_an_edit_may_change_a_comment_itself() -> None:
    before = "x = 1  # noqa: A, B  # why\ny = 2  # noqa\n"
    assert passes(before, edit(before, "A, B", "B"), edit(before, "  # noqa\n", "\n"))
    assert passes(before, edit(before, "# noqa: A, B  ", ""))


def rewrite(text: str) -> bytes | None:
    data = text.encode()
    return check_file(data, "m.py", Settings(fix=True), Project([ProjectFile(data, "m.py")])).output


def plant(monkeypatch: pytest.MonkeyPatch, sign: str, old: str, new: str) -> None:
    """Make changes of code with a sign in it lead to a fault elsewhere."""
    right = replaced

    def wrong(text: str, changes: Iterable[Change]) -> str:
        changes = list(changes)
        faulty = any(sign in text[start:end] for start, end, _ in changes)
        result = right(text, changes)
        return result.replace(old, new) if faulty else result

    monkeypatch.setattr(fix, "replaced", wrong)


def test_the_message_names_the_fixes_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "bad", "  # why", "")
    text = "import torch\n\nn = 1  # why\nx = y.cuda()\ntorch.cuda.synchronize()\nz = bad.cuda()\n"
    with pytest.raises(SelfCheckError) as caught:
        rewrite(text)
    message = str(caught.value)
    assert "The cause is DF101 on line 6, column 5." in message
    assert message.endswith("devicefix rewrite --select DF101 -- m.py")


def test_an_error_in_a_fix_is_reported_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_text: str, _changes: Iterable[Change]) -> str:
        raise KeyError("x")

    monkeypatch.setattr(fix, "replaced", fails)
    with pytest.raises(SelfCheckError, match=r"fails with KeyError: 'x'"):
        rewrite("import torch\n\nx = y.cuda()\n")


def test_a_failed_check_keeps_the_file_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "bad", "(1)", "1")
    bad, good = "import torch\n\nn = (1)\nx = bad.cuda()\n", "import torch\n\nx = y.cuda()\n"
    (tmp_path / "a.py").write_text(bad)
    (tmp_path / "b.py").write_text(good)
    ran = runner().invoke(main, ["rewrite", "--in-place", str(tmp_path)])
    assert ran.exit_code == 2
    assert (tmp_path / "a.py").read_text() == bad
    assert "y.to(device)" in (tmp_path / "b.py").read_text()
    assert f"devicefix rewrite --select DF101 -- {tmp_path / 'a.py'}" in ran.output


# -- names -----------------------------------------------------------------------------------------------


def unbound(before: str, *edits: Edit) -> str:
    """Return what the self-check says of the names that edits bring, empty if they are bound."""
    before = dedent(before).lstrip("\n")
    source = Source(before.encode())
    wanted = joined(before, edits)
    changes = resolved(before, wanted)
    output = replaced(before, changes).encode()
    try:
        check_names(source, *check(source, ast.parse(before), output, wanted, changes), changes)
    except SelfCheckError as problem:
        return str(problem)
    return ""


LATE = "import torch\n\n\ndef f(x):\n    x.cuda()\n\n\nf(1)\n"
DEFINED = "\ndevice = 1\n"


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (12, ""),
        (len(LATE), "uses `device` on line 5, where it may not be bound"),
        (LATE.index("\nf(1)"), ""),
        (None, "uses `device` on line 5, where it may not be bound"),
    ],
)
def test_a_new_name_is_bound_where_it_is_used(at: int | None, message: str) -> None:
    defined = [] if at is None else [Edit(at, at, DEFINED, effect=Effect(added=("Assign",)))]
    found = unbound(LATE, *defined, *moves(LATE))
    assert re.sub(r"line \d+", "line 5", found) == message


@pytest.mark.parametrize(
    "before",
    [
        "def f(x):\n    x.cuda()\n    device = 1\n",
        "device = 1\n\n\ndef f(x):\n    x.cuda()\n    import device\n",
        "device = 1\ndel device\nx = 1\nx.cuda()\n",
        "if __name__ == '__main__':\n    device = 1\n\n\ndef f(x):\n    x.cuda()\n",
        "x = f'{x.cuda()}'\ndevice = 1\n",
    ],
)
def test_a_new_name_that_may_be_unbound_is_found(before: str) -> None:
    assert "`device`" in unbound(before, *moves(before))


def test_names_of_the_old_text_and_builtins_are_not_asked_for() -> None:
    before = "def f():\n    y.cuda()\n"
    assert not unbound(before, Edit(13, 21, "print(y.cpu(), y.cuda)"))
    assert unbound(before, Edit(13, 21, "z.cuda()")) == "uses `z` on line 2, where it may not be bound"


def test_a_fix_that_brings_an_unbound_name_leaves_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bound, "ran", lambda *_: True)  # the proof before the fix is offered
    with pytest.raises(SelfCheckError, match="uses `device` on line"):
        check_file(
            b"import os\ntorch = f()\n\nx.cuda()\nimport torch\n", "m.py", Settings(fix=True), Project()
        )


def test_a_device_before_a_decorated_function_is_kept() -> None:
    before = b"try:\n    import torch\nexcept ImportError:\n    torch = None\n\ndef f():\n\n"
    before += b"    @run\n    def g(x):\n        return x.cuda()\n"
    result = check_file(before, "m.py", Settings(fix=True), Project())
    assert result.output is not None
    assert b"return x.to(device)" in result.output


def test_a_device_before_a_removed_refusal_is_kept() -> None:
    before = dedent(
        """\
        import os
        import torch as torch

        def build():
            os.environ.update(CUDA_VISIBLE_DEVICES='1')
        build()

        def sync():
            device = torch.device('cuda')
        if __name__ == '__main__':
            sync()

        def sync(x):
            if not torch.cuda.is_available():
                raise RuntimeError('no GPU')
            return x.cuda()
        """
    )
    result = check_file(before.encode(), "m.py", Settings(fix=True), Project())
    assert result.output is not None
    assert b"raise" not in result.output
    assert b"return x.to(device)" in result.output


def test_a_refusal_that_a_fix_removes_proves_no_name_bound() -> None:
    before = b"if ready:\n    import torch\n\ndef move(x):\n    assert torch.cuda.is_available()\n"
    result = check_file(before + b"    return x.cuda()\n", "m.py", Settings(fix=True), Project())
    assert {finding.code for finding in result.findings} == {"DF101", "DF701"}


def test_a_line_above_a_decorated_function_at_the_start_of_a_function() -> None:
    code = (
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n\n\ndef f():\n    @torch.no_grad()\n"
        "    def g(x):\n        return x.cuda()\n"
    )
    output = check_file(code.encode(), "x.py", Settings(fix=True), Project()).output
    assert output is not None
    assert b"    device = torch.device(" in output


def test_a_name_whose_import_goes_is_not_bound() -> None:
    effect = Effect(added=("Expr",), removed=((0, 12),))
    assert "`torch`" in unbound("import torch\nrun()\n", Edit(0, 13, "torch.zeros(1)\n", effect=effect))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit(3, 4, "x and print(y)"), ""),
        (Edit(3, 4, "print(y) and x"), "uses `y` on line 1, where it may not be bound"),
        (Edit(3, 4, "print(y)"), "uses `y` on line 1, where it may not be bound"),
    ],
)
def test_a_test_may_read_what_the_statement_below_reads(edit: Edit, message: str) -> None:
    assert unbound("if x:\n    print(y)\n", edit) == message
