"""Copies that only a GPU makes, and that are still in use when what they were made of changes.

`x.cpu()`, `x.cuda()` and `x.to(device)` copy from one device to another. Where there is only the CPU they
return `x` itself, and `x.cpu().numpy()` is a view of it. That matters where the result is kept, `x` is then
changed in place, and the result is used after that.

On a CPU, what is changed in place may be the copy as well as its source, by any of their names.

In the order in which they need one another: `expressions` and `bodies` are about syntax; `dtypes` and
`moves` find what copies on a GPU, `places` what it copies, `leaves` which tensors an optimizer changes;
`copying` puts these together. `keeping` finds what keeps a copy and how long, `uses` where it is used,
`aliases` its other names. `training` and `changes` find what is changed in place, `buffers` which buffers
of a module are; `clashes` what is changed and used while it is kept. `calls` follows parameters to their
arguments, and `search` goes through the module.
"""

from devicefix.facts.copies.places import Place
from devicefix.facts.copies.search import Held, held_copies

__all__ = ["Held", "Place", "held_copies"]
