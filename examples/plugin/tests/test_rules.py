"""Test each rule by its own examples."""

import pytest
from devicefix_example.tf32_of_cuda import Tf32OfCuda

from devicefix.testing import Case, examples


@pytest.mark.parametrize("case", examples(Tf32OfCuda), ids=str)
def test_example(case: Case) -> None:
    """Check one example."""
    case.check()
