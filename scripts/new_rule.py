"""Create the file of a new rule: python scripts/new_rule.py DF123 kebab-name.

The new rule works: it reports uses of `torch.cuda.replace_me`, and its examples pass. Change it step by step.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULES = ROOT / "devicefix" / "rules"

TEMPLATE = '''\
from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.model import Finding
from devicefix.rules.base import Example, Rule


class {class_name}(Rule):
    """
    ## What it does
    Finds `torch.cuda.replace_me`.

    ## Why it matters
    Say what happens without CUDA, with the error message if there is one.

    ## Example
    ```python
    torch.cuda.replace_me()
    ```

    ## Use instead
    ```python
    replaced()
    ```

    ## Fix safety
    Say why the fix is safe, when it is unsafe, or why there is no fix.
    """

    code = "{code}"
    name = "{name}"
    summary = "Say what is found in one line without a full stop"
    references = ("torch.cuda.replace_me",)
    INVALID = (
        Example(
            "a call of the function",
            before="""
                import torch

                torch.cuda.replace_me()
            """,
            after=None,
        ),
        Example(
            "another name for the function",
            before="""
                from torch.cuda import replace_me as other

                other()
            """,
            after=None,
        ),
    )
    VALID = (
        Example(
            "a function of another module",
            """
                import torch
                from other import replace_me

                replace_me()
            """,
        ),
    )

    def visit_reference(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Finding]:
        if not self.facts.is_guarded(node):
            yield self.finding(node, f"`{{name}}` needs CUDA: say what to use instead")
'''

NEXT_STEPS = """\
wrote {path}

Next:
  1. Write the examples: INVALID is what the rule reports, with the rewritten code in `after`; VALID is what
     looks similar and must be left alone.
  2. Find it: set `references`; or declare `words`, and replace `visit_reference` by `visit_Call` and so on.
  3. Fix it: pass a fix of `self.context`, such as `self.context.when_cuda(...)`, to `self.finding`.
  4. Describe it: fill in the docstring (the page of the rule) and `summary`.
  5. Add a row to docs/patterns.md, such as
     | `torch.cuda.replace_me()` | {code} | **reported** |
  6. Run it:
     pytest tests/rules/test_rules.py tests/docs/test_docs.py -k {code}
     nox -s lint
     python benchmarks/corpus.py compare main

docs/adding-a-rule.md has the details.
"""


class NewRuleError(Exception):
    """The code or name of the new rule cannot be used."""


def create(code: str, name: str, rules: Path = RULES) -> Path:
    """Write the file of a new rule.

    Args:
        code: a free code, `DF` and three digits.
        name: a free name in kebab-case.
        rules: the folder of the rules.

    Returns:
        The path of the new file.

    Raises:
        NewRuleError: the code or the name is malformed or taken.
    """
    if not re.fullmatch(r"DF\d{3}", code):
        raise NewRuleError(f"`{code}` is not a code: use DF and three digits, such as DF123")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise NewRuleError(f"`{name}` is not a name: use kebab-case, such as `cuda-call`")
    for rule in sorted(rules.rglob("*.py")):
        text, place = rule.read_text(encoding="utf-8"), rule.relative_to(rules).as_posix()
        if f'    code = "{code}"\n' in text:
            raise NewRuleError(f"the code {code} is taken by {place}: `devicefix rule` lists all codes")
        if f'    name = "{name}"\n' in text:
            raise NewRuleError(f"the name `{name}` is taken by {place}")
    path = rules / f"{name.replace('-', '_')}.py"
    class_name = "".join(word.capitalize() for word in name.split("-"))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(code=code, name=name, class_name=class_name))
    except FileExistsError:
        raise NewRuleError(f"the file {path.name} exists already: choose another name") from None
    return path


def main() -> int:
    """Create the rule that the command line asks for, and print the next steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("code", help="a free code: DF and three digits, the first of which is the category")
    parser.add_argument("name", help="a free name in kebab-case")
    arguments = parser.parse_args()
    try:
        path = create(arguments.code, arguments.name)
    except NewRuleError as problem:
        parser.error(str(problem))
    print(NEXT_STEPS.format(path=path.relative_to(ROOT), code=arguments.code))
    return 0


if __name__ == "__main__":
    sys.exit(main())
