"""Rules by their own examples, for the tests of those who write rules."""

from __future__ import annotations

from dataclasses import dataclass

from devicefix.config.settings import Settings
from devicefix.model import Result
from devicefix.rules.base import Changed, Rule


@dataclass(frozen=True, slots=True)
class Example:
    """An example of a rule, as a test.

    Attributes:
        rule: whose it is.
        example: one of its `MATCHES`, or of its `LEAVES`.
        number: which of them, from 0.
    """

    rule: type[Rule]
    example: Changed | str
    number: int

    def __str__(self) -> str:
        """A name for the test, such as `XY101-matches-0`."""
        kind = "leaves" if isinstance(self.example, str) else "matches"
        return f"{self.rule.code}-{kind}-{self.number}"

    def check(self) -> None:
        """Hold what devicefix makes of the example against what it says.

        The rules are on that are by default, as for a user; for a rule that is off by default, all are.

        Raises:
            AssertionError: the rule finds something in what it is to leave or nothing in what it is to match,
                or the result is another one, or a second run changes it again.
        """
        if isinstance(self.example, str):
            found = self._codes(self._run(self.example))
            assert self.rule.code not in found, f"{self}: finds something in\n{self.example}"
            return
        before, after = self.example.before, self.example.after
        result = self._run(before, self.example.unsafe)
        assert self.rule.code in self._codes(result), f"{self}: finds nothing in\n{before}"
        became = result.output.decode() if result.output else None
        assert became == after, f"{self}: expected\n{after}\nand got\n{became}"
        if after is not None:
            again = self._run(after).output
            assert again is None, f"{self}: a second run makes of it\n{again.decode() if again else again}"

    def _run(self, text: str, unsafe: bool = False) -> Result:
        from devicefix.engine.file import check_file
        from devicefix.facts.exports import summarize
        from devicefix.facts.project import Project
        from devicefix.rules.registry import RULES

        data = text.encode()
        settings = Settings(
            select=() if self.rule.default else tuple(RULES),
            fix=True,
            unsafe_fixes=unsafe,
            target=self.rule.targets[0],
        )
        summary = summarize(data, "module.py")
        return check_file(data, "module.py", settings, Project.of([summary] if summary else []))

    def _codes(self, result: Result) -> set[str]:
        return {finding.code for finding in result.findings}


def examples(*rules: type[Rule]) -> list[Example]:
    """The examples of rules: `MATCHES` and `LEAVES`.

    Args:
        rules: classes of rules; each must be installed, by an entry point of the group `devicefix.rules`.

    Raises:
        LookupError: devicefix does not know one of the rules.
    """
    from devicefix.rules.registry import RULES

    for rule in rules:
        if RULES.get(rule.code) is not rule:
            raise LookupError(f"devicefix does not know the rule {rule.code}: install its distribution first")
    return [
        *(Example(rule, example, at) for rule in rules for at, example in enumerate(rule.MATCHES)),
        *(Example(rule, example, at) for rule in rules for at, example in enumerate(rule.LEAVES)),
    ]
