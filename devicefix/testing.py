"""Tests of rules by their own examples, for those who write rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from devicefix.config.evidence import Evidence, Seen
from devicefix.config.settings import Settings
from devicefix.model import Result
from devicefix.rules.base import Example, Rule

__all__ = ["Case", "examples"]


@dataclass(frozen=True, slots=True)
class Case:
    """One example of a rule, as a test.

    Attributes:
        rule: the rule whose example it is.
        example: one of its `INVALID` or `VALID` examples.
        valid: whether the rule leaves the example alone.
    """

    rule: type[Rule]
    example: Example
    valid: bool

    def __str__(self) -> str:
        """Return a name for the test, such as `XY101-name-in-words`."""
        return f"{self.rule.code}-{'-'.join(self.example.name.split())}"

    def check(self) -> None:
        """Compare what devicefix does to the example with what the example says.

        The rules that are on by default run, as for a user; for a rule that is off by default, all run.

        Raises:
            AssertionError: the rule reports a valid example or does not report an invalid one, the rewritten
                code is different, or a second run changes it again.
        """
        before, after = self.example.before, self.example.after
        result = self._run(before, self.example.unsafe, self.example.seen)
        found = self.rule.code in {finding.code for finding in result.findings}
        if self.valid:
            assert not found, f"{self}: {self.rule.code} is reported in\n{before}"
            return
        assert found, f"{self}: {self.rule.code} is not reported in\n{before}"
        actual = result.output.decode() if result.output else None
        assert actual == after, f"{self}: expected\n{after}\nand got\n{actual}"
        if after is not None:
            again = self._run(after).output
            assert again is None, f"{self}: a second run rewrites it to\n{again.decode() if again else again}"

    def _run(self, text: str, unsafe: bool = False, seen: Iterable[Seen] = ()) -> Result:
        from devicefix.engine.file import check_file
        from devicefix.facts.project import Project, ProjectFile
        from devicefix.rules.registry import RULES

        data = text.encode()
        settings = Settings(
            select=() if self.rule.default else tuple(RULES),
            fix=True,
            unsafe_fixes=unsafe,
            target=self.rule.targets[0],
            evidence=Evidence(frozenset(("module.py", each) for each in seen)),
        )
        return check_file(data, "module.py", settings, Project([ProjectFile(data, "module.py")]))


def examples(*rules: type[Rule]) -> list[Case]:
    """Return a test for each example of some rules.

    Args:
        rules: classes of rules; each must be installed, by an entry point of the group `devicefix.rules`.

    Raises:
        LookupError: devicefix does not know one of the rules.
        ValueError: two examples of a rule have the same name.
    """
    from devicefix.rules.registry import RULES

    cases: list[Case] = []
    for rule in rules:
        if RULES.get(rule.code) is not rule:
            raise LookupError(f"devicefix does not know the rule {rule.code}; install its distribution first")
        found = [Case(rule, example, False) for example in rule.INVALID]
        found += [Case(rule, example, True) for example in rule.VALID]
        ids = [str(case) for case in found]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"two examples are called {name}")
        cases += found
    return cases
