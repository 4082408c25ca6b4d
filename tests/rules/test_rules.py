"""Rules by their own examples, their documentation, their precedence and how they visit nodes."""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace

import pytest

from devicefix.config.settings import RuleOptions, Settings
from devicefix.config.values import TARGETS
from devicefix.devices.context import Context
from devicefix.engine.check import matters
from devicefix.engine.file import check_file as run
from devicefix.engine.fix import recheck
from devicefix.facts import Facts
from devicefix.facts.prefilter import imported_words
from devicefix.facts.project import Project, ProjectFile
from devicefix.model import Finding, Safety
from devicefix.rules import pin_memory, registry
from devicefix.rules.base import Example, Rule, attributes_of, words_of
from devicefix.rules.categories import CATEGORIES
from devicefix.rules.dispatch import CircleError, precedence, tables, visit
from devicefix.rules.pages import fixes
from devicefix.rules.registry import ORDER, RANKS, RULES, WORDS, words
from devicefix.testing import Case, examples

SECTIONS = ("## What it does", "## Why it matters", "## Example", "## Use instead", "## Fix safety")
CASES = examples(*RULES.values())

BESIDE = ("DF905", "DF906", "DF907", "DF908")  # rules for files beside the code


@pytest.mark.parametrize("case", CASES, ids=str)
def test_example(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", [case for case in CASES if case.example.unsafe], ids=str)
def test_an_unsafe_fix_is_not_made_by_default(case: Case) -> None:
    output = case._run(case.example.before).output
    assert case.example.after is not None
    assert output is None or output.decode() != case.example.after


def test_no_example_is_lost() -> None:
    assert sum(not case.valid for case in CASES) >= 178
    assert sum(case.valid for case in CASES) >= 155


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_has_findings_passes_the_prefilter(rule: type[Rule], target: str) -> None:
    """Rewritten code does so, too: the next run finds and fixes what remains."""
    settings = Settings(fix=True, target=target)
    every = replace(settings, select=("DF",))
    seen: set[tuple[bytes, Settings]] = set()
    texts = [(text.encode(), replace(every, unsafe_fixes=True)) for text in _texts(rule)]
    while texts:
        data, used = texts.pop()
        if (data, used) in seen:
            continue
        seen.add((data, used))
        result = recheck(data, "module.py", used, Project([ProjectFile(data, "module.py")]))
        assert matters(data, used) or not result.findings, (data.decode(), used)
        if result.output is not None:
            texts.append((result.output, used))
        # Only these findings and fixes would be others with fewer rules, or without unsafe fixes.
        if used.select and not all(RULES[each.code].default for each in result.findings):
            texts.append((data, replace(used, select=())))
        elif used.select:
            assert matters(data, replace(used, select=())) or not result.findings, data.decode()
        if used.unsafe_fixes and not all(each.safety is Safety.SAFE for each in result.fixed):
            texts.append((data, replace(used, unsafe_fixes=False)))


def _texts(rule: type[Rule]) -> list[str]:
    before = [example.before for example in (*rule.INVALID, *rule.VALID)]
    return before + [example.after for example in rule.INVALID if example.after]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_is_documented(rule: type[Rule]) -> None:
    page = rule.__doc__ or ""
    positions = [page.index(section) for section in SECTIONS]
    assert positions == sorted(positions)
    assert rule.INVALID or rule.code in ("DF207", "DF901", *BESIDE)  # these need other files than a module
    assert rule.summary
    assert not rule.summary.endswith(".")


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_page_names_the_fixes_of_its_examples(rule: type[Rule]) -> None:
    kinds = {"unsafe" if example.unsafe else "safe" for example in rule.INVALID if example.after is not None}
    assert kinds <= set(fixes(rule)) or rule.code == "DF703"  # an example that another rule fixes


def test_a_rule_without_a_section_on_safety_has_the_fixes_of_its_examples() -> None:
    class Bare(Rule):
        INVALID = (Example("a", "x", "y", unsafe=True), Example("b", "x"))

    assert fixes(Bare) == ["unsafe"]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_examples_have_names(rule: type[Rule]) -> None:
    names = [example.name for example in (*rule.INVALID, *rule.VALID)]
    assert all(names)


def _first_line(statement: ast.stmt) -> int:
    """Return the line on which a statement begins, or its first decorator does."""
    nodes: list[ast.stmt | ast.expr] = [statement, *getattr(statement, "decorator_list", ())]
    return min(node.lineno for node in nodes)


VISITING = [
    rule
    for code, rule in RULES.items()
    if code not in ("DF001", "DF901", *BESIDE) and not rule.needs_run and not hasattr(rule, "visit_Module")
]


@pytest.mark.parametrize("rule", VISITING, ids=lambda rule: rule.code)
def test_words_are_complete(rule: type[Rule]) -> None:
    """A rule that visits nodes finds something only in lines that hold one of its words."""
    found = 0
    for example in rule.INVALID:
        data = example.before.encode()
        settings = Settings(select=("DF",), target=rule.targets[0])
        statements = [node for node in ast.walk(ast.parse(data)) if isinstance(node, ast.stmt)]
        imports = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
        searched = (*words_of(rule), *rule.common_words, *imported_words(imports, words_of(rule)))
        facts = Facts.read(data)
        for finding in run(data, "module.py", settings, Project([ProjectFile(data, "module.py")])).findings:
            if finding.code == rule.code and finding.line not in facts.guards.lines:
                found += 1
                last = max(
                    (node for node in statements if _first_line(node) <= finding.line), key=_first_line
                )
                code = "\n".join(example.before.splitlines()[_first_line(last) - 1 : last.end_lineno]).lower()
                assert any(word.decode().lower() in code for word in searched), (
                    f"add a word of this statement to `words` or `common_words` of {rule.code}:\n{code}"
                )
    assert found


def test_each_rule_has_a_category_and_each_category_a_rule() -> None:
    assert {code[:3] for code in RULES} == {category.prefix for category in CATEGORIES}


def test_the_registry_holds_the_words_of_all_rules() -> None:
    assert {b"cuda", b"device"} <= set(WORDS)
    assert b"device" not in words(Settings(select=("DF",)))  # too common to parse a file for


def test_two_rules_with_one_code_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    second = type("Second", (Rule,), {"code": "DF101", "__module__": pin_memory.__name__})
    monkeypatch.setattr(pin_memory, "Second", second, raising=False)
    with pytest.raises(ValueError, match=r"CudaCall and .*\.Second have the same code DF101"):
        registry._own()


# -- precedence ------------------------------------------------------------------------------------------


def codes(text: str, **settings: object) -> list[str]:
    """Return the codes of the findings in a module."""
    data = textwrap.dedent(text).encode()
    project = Project([ProjectFile(data, "module.py")])
    return [finding.code for finding in run(data, "module.py", Settings(**settings), project).findings]  # type: ignore[arg-type]


STATEMENTS = (
    "async with g(torch.zeros(n).cuda()): pass",
    "async with g(a), torch.zeros(n).cuda() as b: pass",
    "async for x in torch.zeros(n).cuda(): pass",
    "with g(torch.zeros(n).cuda()): pass",
    "for x in torch.zeros(n).cuda(): pass",
    "while torch.zeros(n).cuda(): pass",
    "if torch.zeros(n).cuda(): pass",
    "match torch.zeros(n).cuda():\n        case x: pass",
    "del x[torch.zeros(n).cuda()]",
    "raise E(torch.zeros(n).cuda())",
    "assert torch.zeros(n).cuda()",
    "return torch.zeros(n).cuda()",
    "x: int = torch.zeros(n).cuda()",
    "x += torch.zeros(n).cuda()",
    "def g(x=torch.zeros(n).cuda()): pass",
    "class G(base(torch.zeros(n).cuda())): pass",
    "try: x = torch.zeros(n).cuda()\n    finally: pass",
    pytest.param(
        "try: x = torch.zeros(n).cuda()\n    except* E: pass",
        marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="new in Python 3.11"),
    ),
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_move_is_found_in_statements_of_every_kind(statement: str) -> None:
    text = f"import torch\n\n\nasync def f(n, x):\n    {statement}\n"
    assert codes(text) == ["DF101"]


def test_the_order_is_declared() -> None:
    assert set(ORDER) == set(RULES)
    for code, rule in RULES.items():
        for other in rule.before:
            assert RANKS[code] > RANKS[other]
            assert ORDER.index(code) < ORDER.index(other)
    assert [code for code in ORDER if not RANKS[code]] == [code for code in RULES if not RANKS[code]]


def make(name: str, code: str, **attributes: object) -> type[Rule]:
    """Return a class of rules."""
    return type(name, (Rule,), {"code": code, "name": name, "summary": name, **attributes})


def test_precedence() -> None:
    first = make("first", "XY3", before=("XY2", "ZZ9"))
    second = make("second", "XY2", before=("XY1",))
    third = make("third", "XY1")
    assert precedence({"XY1": third, "XY2": second, "XY3": first}) == {"XY1": 0, "XY2": 1, "XY3": 2}
    circle = {"XY1": make("a", "XY1", before=("XY2",)), "XY2": make("b", "XY2", before=("XY1",))}
    with pytest.raises(CircleError, match="XY1 before XY2 before XY1"):
        precedence(circle)


# -- visitors --------------------------------------------------------------------------------------------


def found(text: str, *rules: type[Rule]) -> list[str]:
    """Return the messages of rules about a module, in the order in which they are found."""
    data = textwrap.dedent(text).encode()
    facts = Facts.read(data)
    context = Context(
        facts.source, facts, Project([ProjectFile(data, "module.py")]), "module.py", RuleOptions()
    )
    ranks = precedence({rule.code: rule for rule in rules})
    statements = facts.tree.statements_at(range(1, len(facts.tree.text)))  # without the module itself
    methods = tables([rule(context) for rule in rules], ranks)
    return [
        finding.message for _, finding in visit(statements, methods, context.handled, attributes_of(rules))
    ]


class Statements(Rule):
    code, name, summary = "XY1", "statements", "Statements"

    def visit_statement(self, node: ast.stmt) -> Iterator[Finding]:
        yield self.finding(node, type(node).__name__)


def test_visit_statement() -> None:
    text = """
        async def f(cuda):
            async with cuda: pass
            async for x in cuda: pass
            match cuda:
                case 1: del cuda[0]
            with cuda: pass
            try: raise cuda
            finally: return cuda
        """
    kinds = "AsyncFunctionDef AsyncWith AsyncFor Match Delete With Try Raise Return"  # those that hold a word
    assert found(text, Statements) == kinds.split()


class References(Rule):
    code, name, summary = "XY2", "references", "References"
    references = ("torch.cuda.amp.custom_fwd", "torch.cuda.amp")

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        yield self.finding(node, f"{self.context.source.code(node)} is {name}")


class Attributes(Rule):
    code, name, summary = "XY3", "attributes", "Attributes"

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        yield self.finding(node, node.attr)


class Indices(Attributes):
    code = "XY4"
    attributes = ("index",)


def test_attributes_that_no_rule_looks_for_are_not_visited() -> None:
    text = "x.index.cuda\n"
    assert found(text, Indices) == ["index"]
    assert found(text, Attributes) == ["cuda", "index"]
    assert found(text, Indices, Attributes) == ["cuda", "cuda", "index", "index"]


@pytest.mark.parametrize(
    ("imports", "code", "messages"),
    [
        ("import torch", "torch.cuda.amp.custom_fwd", ["torch.cuda.amp.custom_fwd", "torch.cuda.amp"]),
        ("import torch.cuda as tc", "tc.amp.custom_fwd", ["tc.amp.custom_fwd", "tc.amp"]),
        ("from torch.cuda.amp import custom_fwd as forward", "forward  # cuda", ["forward"]),
        ("from torch.cuda.amp import *", "custom_bwd  # cuda", []),
        ("import torch\nforward = torch.cuda.synchronize", "forward  # cuda", []),
        ("import amp", "amp.custom_fwd  # cuda", []),
    ],
)
def test_visit_reference(imports: str, code: str, messages: list[str]) -> None:
    got = found(f"{imports}\n\n{code}\n", References)
    assert [message.partition(" ")[0] for message in got] == messages


def test_a_variable_is_not_a_reference() -> None:
    text = "import torch\n\nforward = torch.cuda.amp.custom_fwd\ncuda = forward(1)\n"
    assert found(text, References) == [
        "torch.cuda.amp.custom_fwd is torch.cuda.amp.custom_fwd",
        "torch.cuda.amp is torch.cuda.amp",
    ]


class Inner(Rule):
    code, name, summary = "XY4", "inner", "The inner call"
    before = ("XY5",)

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        if isinstance(node.func, ast.Name) and node.func.id == "inner":
            self.context.mark_handled(node)
            yield self.finding(node, "inner")


class Calls(Rule):
    code, name, summary = "XY5", "calls", "Calls"

    def visit_Call(self, node: ast.Call) -> Iterator[Finding]:
        yield self.finding(node, "call")


def test_the_first_rule_visits_a_whole_statement_before_the_others() -> None:
    text = "outer(inner(cuda()))\n"
    assert found(text, Calls, Inner) == ["inner", "call"]  # `inner(...)` and `cuda()` are handled
    text = "inner(cuda)\nouter(cuda)\ninner(cuda)\n"
    assert found(text, Calls, Inner) == ["inner", "call", "inner"]


# -- examples --------------------------------------------------------------------------------------------


def test_examples_are_dedented() -> None:
    block = """
        if x:
            y
    """
    assert Example("a block", block).before == "if x:\n    y\n"
    assert Example("as it is", "  x\r\n").before == "  x\r\n"
    assert Example("both", block, block).after == "if x:\n    y\n"
