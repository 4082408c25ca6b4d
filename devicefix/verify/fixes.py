"""Requests for CUDA that a fix was to remove, rather than a tie that is left."""

from __future__ import annotations

import re

from devicefix.verify.case import Case
from devicefix.verify.cause import Cause, Explanation
from devicefix.verify.places import place as shown
from devicefix.verify.places import source
from devicefix.verify.tried import wrong_fix
from devicefix.verify.verdict import Location

_CUDA_CALL = re.compile(r"^(?:torch\.cuda\.|\.|Module\.)(?:\w+\.)*?(\w+)\(\)$")


def blamed(case: Case, explanation: Explanation | None) -> Explanation | None:
    """Return the explanation of a request for CUDA, or that of the fix whose line still makes it."""
    if explanation is None or explanation.cause is not Cause.TIE or explanation.ties:
        return explanation
    asked = dict.fromkeys(request.place for request in case.requests)
    places = [at for at in asked if case.fixed(at) and _remains(case, at)]
    if not places:
        return explanation
    return wrong_fix(
        case, explanation.evidence[0], f"{shown(places[0])} still requests CUDA after its fix", at=places
    )


def _remains(case: Case, at: Location) -> bool:
    """Return whether a line still makes the very call for CUDA that its fix was to remove or guard."""
    words = set(re.findall(r"\w+", source(at)))
    for request in case.requests:
        call = _CUDA_CALL.match(request.call)
        if request.place == at and call and call[1] in words:
            if call[1] == "cuda" or request.call.startswith("torch.cuda."):
                return True
    return False
