"""Copies that only a GPU makes, and that are still in use when what they were made of changes.

`x.cpu()`, `x.cuda()` and `x.to(device)` copy from one device to another. Where there is only the CPU, they
return `x` itself, and `x.cpu().numpy()` is a view of it. That matters where the result is kept, one of the
two is then changed in place, and the other one is used after that.

`moves` finds the calls that copy, `views` what an expression is on a CPU, `changes` what a statement changes
in place, `bodies` the changes and uses of one function, and `search` the copies that are used after a change.
What these don't follow, such as attributes from one method to another and the elements of lists,
`devicefix verify` sees when it runs the program.
"""

from devicefix.facts.copies.search import Held, held_copies
from devicefix.facts.copies.views import Place

__all__ = ["Held", "Place", "held_copies"]
