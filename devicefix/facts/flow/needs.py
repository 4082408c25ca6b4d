"""Find the needs of the uses of a value, in the module and in the functions of other files."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from devicefix.facts.backends import takes_backend
from devicefix.facts.flow.forwards import Followed, Forwards, Use, use_of_import
from devicefix.facts.flow.merged import told_apart
from devicefix.facts.flow.parameters import Function, Place, argument_at
from devicefix.facts.flow.taken_numbers import is_number, takes_number, uses_of
from devicefix.facts.module import Facts
from devicefix.facts.refused_devices import is_refused
from devicefix.facts.scopes import dotted

# They raise an error for `nan`, with one argument.
_WHOLE_NUMBERS = {"int", "round", "range", "math.floor", "math.ceil", "math.trunc"}
# They compare their arguments, and `nan` with anything is false.
_ORDERS = {"min", "max", "sorted"}
# They return 0 for 0, whatever else they get.
_ZEROS = {"int", "float", "round", "abs", "min", "math.floor", "math.ceil"}


def need_of(values: Forwards, use: ast.expr) -> Use:
    """Return what a use needs its value to be."""
    facts, needs = values.facts, Use.DEMANDED if _is_demanded(values.facts, use) else Use.NOTHING
    if takes_number(values, use):
        needs |= Use.INDEXED
    if is_refused(facts, use):
        needs |= Use.CPU_REFUSED
    if is_number(facts, use):
        needs |= Use.COUNTED
    if use in facts.once(told_apart, facts.tree.root):
        needs |= Use.TOLD_APART
    if _is_compared(facts, use):
        needs |= Use.ORDERED
    match facts.tree.parents.get(use):
        case parent if divisor(parent) is use:
            needs |= Use.DIVISOR
        case ast.Compare(left=left, comparators=[ast.Constant(value=int())]) if left is use:
            needs |= Use.COMPARED
    call, place = argument_at(facts.tree, use) or (None, None)
    if call is not None and place is not None:
        needs |= use_of_import(facts, call.func, place) & ~(Use.ONLY_DEVICE | Use.CHOSEN)  # true of all uses
        if takes_backend(facts, call.func, place):
            needs |= Use.BACKEND
    return needs


def use_by_function(values: Forwards, argument: ast.expr) -> Use:
    """Return what a function of the module, or an imported one, may do with an argument."""
    call, place = argument_at(values.tree, argument) or (None, None)
    if call is None or place is None:
        return Use.NOTHING
    found = use_of_import(values.facts, call.func, place)
    for function in values.functions(call.func):
        found |= values.use_of_parameter(function, place)
    return found


def use_of_parameter(values: Forwards, function: Function | ast.ClassDef, place: Place) -> Use:
    """Return what a function may do with the value of a parameter, and what it needs that to be."""
    found = values.use_of_parameter(function, place)
    for use in uses_of(values, values.of_parameter(function, place)):
        found |= need_of(values, use)
    return found


def needs_of(values: Forwards, found: Followed) -> Use:
    """Return what all uses of a value need it to be: also those of what it is returned as, and stored in."""
    needs = Use.NOTHING
    names = [variable.name for variable in found.variables if variable.elsewhere]
    for use in found.uses:
        needs |= need_of(values, use)
        parent = values.tree.parents.get(use)
        function = values.tree.scope(use).node if isinstance(parent, ast.Return) else None
        names += [function.name] if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    for name in dict.fromkeys(names):
        needs |= Use(values.facts.others.use_of_result(name))
    return needs


def of_number(values: Forwards, number: ast.expr) -> Followed:
    """Return where the value of a number certainly goes, also after arithmetic."""
    found, todo, seen = Followed(), [number], set[ast.AST]()
    while todo:
        followed = values.of(todo.pop())
        found.variables += followed.variables
        for use in followed.uses:
            parent = values.tree.parents.get(use)
            found.uses.append(use)
            if isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Call)) and parent not in seen:
                seen.add(parent)
                todo += [parent] if not isinstance(parent, ast.Call) or dotted(parent.func) in _ZEROS else []
            elif isinstance(parent, ast.AugAssign) and isinstance(parent.target, (ast.Name, ast.Attribute)):
                todo += {*values.variable(parent.target).reads} - seen
                seen.update(todo)
    return found


def used_as_number(values: Forwards, number: ast.expr) -> ast.expr | None:
    """Return a use of the number of a GPU that counts with it, or takes an item by it, if any."""
    uses = [] if values.facts.is_guarded(number) else values.of(number).uses
    return use_that_needs(values, Use.COUNTED, uses)


def use_that_needs(values: Forwards, needs: Use, uses: Iterable[ast.expr]) -> ast.expr | None:
    """Return the first of some uses without a guard that needs something, if any."""
    free = (use for use in uses if not values.facts.is_guarded(use))
    return next((use for use in free if needs & needs_of(values, Followed(uses=[use]))), None)


def divisor(node: ast.AST | None) -> ast.expr | None:
    """Return what a node divides by, or another part that may not be 0: a step, a size, a key."""
    match node:
        case ast.Call(ast.Name("range"), [_, _, it]) | ast.keyword("batch_size", it) | ast.Subscript(_, it):
            return it
        case ast.BinOp(op=op, right=right) | ast.AugAssign(op=op, value=right):
            return right if isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)) else None
    return None


def _is_compared(facts: Facts, node: ast.expr) -> bool:
    """Return whether a time is compared, or converted to an int, which raises an error for `nan`."""
    parent = facts.tree.parents.get(node)
    if isinstance(parent, ast.Compare):
        return not any(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops)
    if not isinstance(parent, ast.Call) or node not in parent.args:
        return False
    name = facts.resolve(parent.func) or dotted(parent.func)
    return name in _ORDERS or (name in _WHOLE_NUMBERS and len(parent.args) == 1)


def _is_demanded(facts: Facts, node: ast.expr) -> bool:
    """Return whether the program ends, or a loop does not, if a number is 0, and not more."""
    more = True  # whether the test around it is only true for more than 0
    for child, parent in facts.tree.ancestors(node):
        match parent:
            case ast.Compare(ops=[ast.GtE()], comparators=[ast.Constant(value=0)]):
                return False
            case ast.Compare(left=left, ops=[op, *_]):
                more = isinstance(op, (ast.Eq, *((ast.Gt, ast.GtE) if left is child else (ast.Lt, ast.LtE))))
            case ast.UnaryOp(op=ast.Not()):
                more = not more
            case ast.If(test=test, body=body, orelse=orelse):
                return child is test and facts.guards.refusals.refuses(orelse if more else body)
            case ast.Assert(test=test) | ast.While(test=test):
                return child is test and more is isinstance(parent, ast.Assert)
    return False
