"""Prove that a name is bound, or that a statement has run, whenever a place is reached.

This is definite assignment, as compilers prove it for local variables, over the code of a module or function,
and over the functions inside it, which may run before it ends. A function, or a method of a class, may run as
soon as anything that runs mentions it: to call it, to pass it on, to decorate something with it, or in the
body of another function that may run. A module's functions may also run once it is imported.
https://docs.oracle.com/javase/specs/jls/se21/html/jls-16.html

In the order in which they need one another: `evaluation` is about syntax, `mentions` finds what a statement
may call, `run` goes through the statements up to a goal, and `proof` answers the questions.
"""

from devicefix.facts.bound.proof import Bound

__all__ = ["Bound"]
