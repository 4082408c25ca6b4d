"""New expressions from old ones: LibCST keeps the comments and line breaks inside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from devicefix.rewrite.parsing import comments_in, parse_expression

if TYPE_CHECKING:
    import libcst as cst


def on_call(change: Callable[[cst.Call], cst.Call]) -> Callable[[str], str]:
    """Return a function from text to text that parses a call, changes it and writes it out again."""

    def rewrite(text: str) -> str:
        import libcst as cst

        module, call = parse_expression(text)
        assert isinstance(call, cst.Call)
        return module.code_for_node(change(call))

    return rewrite


def receiver_of(text: str) -> str:
    """Return the code of `x` in that of `x.method(...)`."""
    code = ""

    def read(call: cst.Call) -> cst.Call:
        import libcst as cst

        nonlocal code
        assert isinstance(call.func, cst.Attribute)
        code = cst.Module([]).code_for_node(call.func.value)
        return call

    on_call(read)(text)
    return code


def first_choice(text: str) -> str:
    """Return the code of `a` in that of `a if b else c`, with the comments of the rest after it."""
    import libcst as cst

    module, choice = parse_expression(text)
    assert isinstance(choice, cst.IfExp)
    body = choice.body
    code = module.code_for_node(body)
    if _is_one_line(code):
        code = module.code_for_node(body.with_changes(lpar=(), rpar=()))
    gaps = [choice.whitespace_before_if, choice.whitespace_after_if]
    gaps += [choice.whitespace_before_else, choice.whitespace_after_else]
    breaks = [gap for gap in gaps if isinstance(gap, cst.ParenthesizedWhitespace)]
    comments = comments_in(choice)[len(comments_in(choice.body)) :]
    if not comments:
        return code
    # A comment needs a line end, and so brackets around it: those that the breaks are in, or new ones.
    indentation = breaks[0].last_line.value if breaks else ""
    lines = f"{module.default_newline}{indentation}".join(comment.value for comment in comments)
    lines = f"{code}  {lines}{module.default_newline}{indentation}"
    return lines if breaks else f"({lines})"


def _is_one_line(code: str) -> bool:
    return "\n" not in code and "\r" not in code


def moved(device: str) -> Callable[[str], str]:
    """Return the rewrite of `x.cuda(1, True)` as `x.to(device, non_blocking=True)`.

    Every argument but the device survives.
    """

    def change(call: cst.Call) -> cst.Call:
        import libcst as cst

        _, target = parse_expression(device)
        given = next((arg for i, arg in enumerate(call.args) if _is(arg, i, 0, "device")), None)
        rest = [arg for arg in call.args if arg is not given]
        rest = [_named(arg, "non_blocking") if arg.keyword is None and not arg.star else arg for arg in rest]
        if given is None:
            comma = (
                cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")) if rest else cst.MaybeSentinel.DEFAULT
            )
            first = cst.Arg(target, comma=comma)
        else:
            first = given.with_changes(value=target, keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        args = [first, *rest]
        return _renamed(call, "to").with_changes(args=args)

    return on_call(change)


def _is(arg: cst.Arg, index: int, position: int, name: str) -> bool:
    if arg.star:
        return False
    return index == position if arg.keyword is None else arg.keyword.value == name


def _named(arg: cst.Arg, name: str) -> cst.Arg:
    import libcst as cst

    nothing = cst.SimpleWhitespace("")
    equal = cst.AssignEqual(whitespace_before=nothing, whitespace_after=nothing)
    return arg.with_changes(keyword=cst.Name(name), equal=equal)


def _renamed(call: cst.Call, name: str) -> cst.Call:
    import libcst as cst

    assert isinstance(call.func, cst.Attribute)
    return call.with_changes(func=call.func.with_changes(attr=cst.Name(name)))


def with_keyword(name: str, value: str) -> Callable[[str], str]:
    """Return the rewrite of a call with one more keyword argument, the last one before `**kwargs`."""

    def change(call: cst.Call) -> cst.Call:
        import libcst as cst

        added = _named(cst.Arg(parse_expression(value)[1]), name)
        args = list(call.args)
        at = next((i for i, arg in enumerate(args) if arg.star == "**"), len(args))
        separator = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        if at < len(args):
            return call.with_changes(args=[*args[:at], added.with_changes(comma=separator), *args[at:]])
        if args:
            last = args[-1]
            if isinstance(last.comma, cst.Comma):  # the call still ends in a comma
                before = args[-2].comma if len(args) > 1 else separator
                if not isinstance(before, cst.Comma):
                    before = separator
                added = added.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
                args[-1] = last.with_changes(comma=before)
            else:
                added = added.with_changes(whitespace_after_arg=last.whitespace_after_arg)
                args[-1] = last.with_changes(comma=separator, whitespace_after_arg=cst.SimpleWhitespace(""))
        return call.with_changes(args=[*args, added])

    return on_call(change)
