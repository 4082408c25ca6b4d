"""Show where values in low precision meet values in float32, in code that autocast would cast for.

The types are those without autocast: an operation that gets two of them raises an error on a CPU, where
autocast for CUDA is off. What is not known is not shown. With bfloat16 beside float32 on a CPU (torch 2.13),
`linear`, `matmul`, convolutions, attention and recurrent layers raise an error, elementwise operations and
`cat` promote, normalizations have the type of their input, and an embedding that of its weights.
"""

from devicefix.facts.precision.statements import Precision
from devicefix.facts.precision.tables import LOW
from devicefix.facts.precision.values import Module, Tensor, Value

__all__ = ["LOW", "Module", "Precision", "Tensor", "Value"]
