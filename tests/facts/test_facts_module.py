"""`devicefix.facts.module`: the facts of one module, and those with answers from other files."""

from __future__ import annotations

import gc
import weakref

import pytest

from devicefix.facts import Facts
from devicefix.facts.others import Others
from devicefix.files.text import DecodeError


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"x = (\n", SyntaxError),
        (b"\xff\n", DecodeError),
        (b"x = '\0'\n", (SyntaxError, ValueError, DecodeError)),  # DecodeError since Python 3.14.1
    ],
)
def test_what_is_not_a_module(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        Facts.read(data)


def test_informed_facts_share_the_tree_and_have_their_own_guards() -> None:
    facts = Facts.read(b"if self.use_cuda:\n    run()\n")
    (node,) = facts.tree.reads("run")
    others = Others()
    others.is_integer_option = {"local_rank"}.__contains__  # type: ignore[assignment, method-assign]
    others.is_flag = {"use_cuda"}.__contains__  # type: ignore[assignment, method-assign]
    informed = facts.informed(others)
    assert informed.tree is facts.tree
    assert not facts.is_guarded(node)
    assert informed.is_guarded(node)
    assert informed.is_integer_option("local_rank")
    assert not facts.is_integer_option("local_rank")


def test_no_circle_keeps_facts() -> None:
    gc.disable()
    try:
        facts = Facts.read(b"import torch\nn = torch.cuda.device_count()\nif n > 0:\n    run()\n")
        (node,) = facts.tree.reads("run")
        assert facts.is_guarded(node)
        known = weakref.ref(facts)
        del facts
        assert known() is None
    finally:
        gc.enable()
