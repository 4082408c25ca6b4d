"""The code of an expression that a fix writes."""

from __future__ import annotations

from dataclasses import dataclass

from devicefix.model import Doubt, Need, Refused


@dataclass(frozen=True, slots=True)
class DeviceExpr:
    """The code of an expression, and the imports and definitions that it needs."""

    text: str
    needs: frozenset[Need] = frozenset()

    @property
    def is_refused(self) -> bool:
        """Return whether the module can't have what the code needs."""
        return any(isinstance(need, Refused) for need in self.needs)

    @property
    def is_doubtful(self) -> bool:
        """Return whether it may be wrong that the module gets what the code needs."""
        return any(isinstance(need, (Refused, Doubt)) for need in self.needs)
