"""Each rule by its own examples."""

import pytest
from devicefix_example.tf32_of_cuda import Tf32OfCuda

from devicefix.testing import Example, examples


@pytest.mark.parametrize("example", examples(Tf32OfCuda), ids=str)
def test_example(example: Example) -> None:
    example.check()
