from __future__ import annotations

import ast
from collections.abc import Iterator

from devicefix.facts.copies import held_copies
from devicefix.model import Finding
from devicefix.rules.base import Example, Rule
from devicefix.rules.kept_view import copied, remedy


class KeptState(Rule):
    """
    ## What it does
    Finds model parameters that the program moves to the CPU or a GPU and stores while training continues. The rule
    follows values only within a file, and not through every call. `devicefix verify` can find other cases.

    ## Why it matters
    On a GPU, `.cpu()` copies the parameter. On a CPU, it makes no copy, so the next optimizer step also changes the
    stored values, without an error.

    ## Example
    ```python
    for epoch in range(epochs):
        train(model, optimizer)
        if accuracy(model) > highest:
            best = {k: v.cpu() for k, v in model.state_dict().items()}
    model.load_state_dict(best)
    ```

    ## Use instead
    ```python
    for epoch in range(epochs):
        train(model, optimizer)
        if accuracy(model) > highest:
            best = {k: v.cpu().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best)
    ```

    ## Fix safety
    The fix is unsafe: with CUDA, the results stay the same, but a second copy takes time and memory.
    """

    code = "DF801"
    name = "kept-state"
    summary = "Parameters stored during training are copies only on a GPU"
    words = (b"cuda",)
    INVALID = (
        Example(
            "the best state of a model in training",
            before="""
                def fit(model, optimizer, loader):  # on cuda
                    best = None
                    for x in loader:
                        model(x).backward()
                        optimizer.step()
                        if better(model):
                            best = {k: v.cpu() for k, v in model.state_dict().items()}
                    model.load_state_dict(best)
            """,
            after="""
                def fit(model, optimizer, loader):  # on cuda
                    best = None
                    for x in loader:
                        model(x).backward()
                        optimizer.step()
                        if better(model):
                            best = {k: v.cpu().clone() for k, v in model.state_dict().items()}
                    model.load_state_dict(best)
            """,
            unsafe=True,
        ),
        Example(
            "copies of parameters that a step changes, in a module that is given its device",
            before="""
                def change(model, optimizer):
                    old = [p.detach().cpu() for p in model.parameters()]
                    optimizer.step()
                    return [(p.cpu() - q).norm() for p, q in zip(model.parameters(), old)]
            """,
            after="""
                def change(model, optimizer):
                    old = [p.detach().cpu().clone() for p in model.parameters()]
                    optimizer.step()
                    return [(p.cpu() - q).norm() for p, q in zip(model.parameters(), old)]
            """,
            unsafe=True,
        ),
        Example(
            "the state in an attribute",
            before="""
                from collections import OrderedDict


                class Stopping:  # on cuda
                    def __call__(self, loss, model):
                        if loss < self.least:
                            self.best = OrderedDict((k, v.detach().cpu()) for k, v in model.state_dict().items())
            """,
            after="""
                from collections import OrderedDict


                class Stopping:  # on cuda
                    def __call__(self, loss, model):
                        if loss < self.least:
                            self.best = OrderedDict((k, v.detach().cpu().clone()) for k, v in model.state_dict().items())
            """,
            unsafe=True,
        ),
        Example(
            "parameters as arrays",
            before="""
                def fit(net, opt, loader):  # on cuda
                    before = [p.data.cpu().numpy() for p in net.parameters()]
                    for x in loader:
                        net(x).backward()
                        opt.step()
                    return compare(before, net)
            """,
            after="""
                def fit(net, opt, loader):  # on cuda
                    before = [p.data.cpu().numpy().copy() for p in net.parameters()]
                    for x in loader:
                        net(x).backward()
                        opt.step()
                    return compare(before, net)
            """,
            unsafe=True,
        ),
        Example(
            "item by item in a loop",
            before="""
                def fit(net, opt, loader):  # on cuda
                    kept = {}
                    for epoch in range(3):
                        for name, value in net.state_dict().items():
                            kept[name] = value.cpu()
                        train(net, loader)
                    return kept
            """,
            after="""
                def fit(net, opt, loader):  # on cuda
                    kept = {}
                    for epoch in range(3):
                        for name, value in net.state_dict().items():
                            kept[name] = value.cpu().clone()
                        train(net, loader)
                    return kept
            """,
            unsafe=True,
        ),
        Example(
            "by a function of the module",
            before="""
                def on_cpu(model):  # on cuda
                    return {k: v.cpu() for k, v in model.state_dict().items()}


                def fit(self):
                    start = on_cpu(self.net)
                    self.optimizer.step()
                    return compare(start, self.net)
            """,
            after="""
                def on_cpu(model):  # on cuda
                    return {k: v.cpu().clone() for k, v in model.state_dict().items()}


                def fit(self):
                    start = on_cpu(self.net)
                    self.optimizer.step()
                    return compare(start, self.net)
            """,
            unsafe=True,
        ),
        Example(
            "the state of a model that is moved to the CPU",
            before="""
                def fit(net, optimizer, device):
                    for epoch in range(9):
                        optimizer.step()
                        if better(net):
                            best = net.cpu().state_dict()
                            net.to(device)  # cuda
                    return best
            """,
        ),
    )
    VALID = (
        Example(
            "written to a file before training continues",
            """
                import torch


                def fit(model, optimizer, loader):  # on cuda
                    for x in loader:
                        optimizer.step()
                        state = {k: v.cpu() for k, v in model.state_dict().items()}
                        torch.save(state, 'model.pt')
            """,
        ),
        Example(
            "nothing trains the model afterwards",
            """
                def export(model):  # on cuda
                    return {k: v.cpu() for k, v in model.state_dict().items()}
            """,
        ),
        Example(
            "cloned already",
            """
                def fit(model, optimizer, loader):  # on cuda
                    best = {k: v.cpu().clone() for k, v in model.state_dict().items()}
                    optimizer.step()
                    return best
            """,
        ),
        Example(
            "a new model in every round",
            """
                def fit(loader):  # on cuda
                    best = []
                    for x in loader:
                        model = Net()
                        optimizer = Adam(model.parameters())
                        optimizer.step()
                        best.append({k: v.cpu() for k, v in model.state_dict().items()})
                    return best
            """,
        ),
    )

    def visit_Module(self, node: ast.Module) -> Iterator[Finding]:
        for held in held_copies(self.facts):
            if held.copy.source.parameters:
                code = self.context.source.code(held.copy.call)
                line = getattr(held.change, "lineno", None)
                training = f"line {line}" if line else "training"
                changed = held.copy.source.path if held.reverse else held.holder
                message = (
                    f"`{code}` makes no copy on a CPU, so {training} also changes `{changed}`; {remedy(held)}"
                )
                yield self.finding(held.copy.outer, message, copied(self.context, held))
