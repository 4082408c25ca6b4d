"""The situations of `meaning_programs.py`: how programs are tied to CUDA."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meaning_programs import Lines, Maker


def _rows(text: str) -> tuple[str, ...]:
    """Return the lines of a text."""
    return tuple(textwrap.dedent(text).strip("\n").split("\n"))


def _blocks(text: str) -> tuple[str, ...]:
    """Return the parts of a text, which have empty lines between them."""
    return tuple(textwrap.dedent(text).strip("\n").split("\n\n"))


DEVICES = {
    "str": (
        "'cuda'",
        "'cuda:0'",
        "'cuda:1'",
        "f'cuda:{0}'",
        "'cuda:%d' % 1",
        "'cuda:' + str(0)",
        "'cuda:{}'.format(0)",
        "'cuda' if torch.cuda.is_available() else 'cpu'",
        "(None or 'cuda')",
        "os.environ.get('NO_SUCH', 'cuda')",
        "(os.getenv('NO_SUCH') or 'cuda:0')",
        "{'device': 'cuda'}['device']",
        "['cuda:0', 'cuda:1'][0]",
        "[f'cuda:{i}' for i in range(2)][0]",
        "str(torch.device('cuda'))",
        "('cuda', 0)[0]",
        "'cu' + 'da'",
        "next(iter(['cuda']))",
        "dict(device='cuda').get('device')",
        "(lambda: 'cuda')()",
        "types.SimpleNamespace(device='cuda').device",
        "torch.accelerator.current_accelerator().type",
        "torch.device('cuda', 1).type",
        "('cuda' if not torch.cuda.device_count() < 1 else 'cpu')",
    ),
    "device": (
        "torch.device('cuda')",
        "torch.device('cuda', 0)",
        "torch.device('cuda:1')",
        "torch.device(type='cuda', index=0)",
        "torch.device(0)",
        "torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')",
        "torch.device('cuda', torch.cuda.current_device())",
        "torch.device(f'cuda:{0}')",
        "torch.ones(1).cuda().device",
        "torch.zeros(1, device='cuda').device",
        "[torch.device('cuda', i) for i in range(torch.cuda.device_count())][0]",
        "(torch.device('cuda') or None)",
        "torch.device('cuda' if 'x' != 'y' else 'cpu')",
        "getattr(torch, 'device')('cuda')",
        "{'gpu': torch.device('cuda')}['gpu']",
        "next(torch.nn.Linear(1, 1).cuda().parameters()).device",
        "torch.accelerator.current_accelerator()",
        "torch.device(*('cuda', 0))",
        "(lambda d='cuda': torch.device(d))()",
    ),
    "int": (
        "0",
        "1",
        "torch.cuda.current_device()",
        "int(os.environ.get('LOCAL_RANK', 0))",
        "int('1')",
        "3 % torch.cuda.device_count()",
        "torch.cuda.device_count() - 1",
        "torch.ones(1).cuda().get_device()",
        "[0, 1][0]",
        "max(0, -1)",
        "list(range(torch.cuda.device_count()))[0]",
        "torch.device('cuda:1').index",
        "(None or 0)",
    ),
}

MOVES = (
    "TENSOR.cuda()",
    "TENSOR.cuda()",
    "TENSOR.cuda(0)",
    "TENSOR.cuda(1)",
    "TENSOR.cuda(None)",
    "TENSOR.cuda(DEV)",
    "TENSOR.cuda(device=DEV)",
    "TENSOR.cuda(non_blocking=True)",
    "TENSOR.cuda(DEV, True)",
    "TENSOR.cuda(DEV, non_blocking=True)",
    "TENSOR.to('cuda')",
    "TENSOR.to('cuda:0')",
    "TENSOR.to(0)",
    "TENSOR.to(DEV)",
    "TENSOR.to(DEV)",
    "TENSOR.to(device=DEV)",
    "TENSOR.to(DEV, torch.float64)",
    "TENSOR.to('cuda', dtype=torch.float64)",
    "TENSOR.to(*['cuda'])",
    "TENSOR.to(*[DEV])",
    "TENSOR.to(**{'device': 'cuda'})",
    "TENSOR.to(**dict(device=DEV))",
    "TENSOR.to(torch.zeros(1, device=DEV))",
    "TENSOR.to(torch.ones(1).cuda().device)",
    "torch.Tensor.cuda(TENSOR)",
    "torch.Tensor.to(TENSOR, 'cuda')",
    "getattr(TENSOR, 'cuda')()",
    "TENSOR.double().cuda().float()",
    "(lambda t: t.cuda())(TENSOR)",
    "(lambda t, d=DEV: t.to(d))(TENSOR)",
    "list(map(torch.Tensor.cuda, [TENSOR]))[0]",
    "list(map(lambda t: t.cuda(), [TENSOR]))[0]",
    "operator.methodcaller('cuda')(TENSOR)",
    "operator.methodcaller('to', 'cuda')(TENSOR)",
    "[t.cuda() for t in [TENSOR]][0]",
    "[t.to(d) for t in [TENSOR] for d in [DEV]][0]",
    "{k: t.cuda() for k, t in {'a': TENSOR}.items()}['a']",
    "tuple(t.cuda(non_blocking=True) for t in (TENSOR,))[0]",
    "functools.partial(torch.Tensor.cuda, non_blocking=True)(TENSOR)",
    "functools.partial(TENSOR.to, 'cuda')()",
    "(TENSOR.cuda)()",
    "TENSOR.type(torch.cuda.FloatTensor)",
    "TENSOR.type('torch.cuda.FloatTensor')",
    "TENSOR.type_as(torch.cuda.FloatTensor(1))",
    "(TENSOR.cuda() if torch.cuda.is_available() else TENSOR)",
    "(torch.cuda.is_available() and TENSOR.cuda())",
    "torch.as_tensor(TENSOR, device=DEV)",
    "torch.tensor(TENSOR.tolist(), device=DEV)",
    "torch.empty_like(TENSOR, device=DEV).copy_(TENSOR)",
    "torch.zeros(TENSOR.shape, device=DEV).copy_(TENSOR)",
    "TENSOR.new_tensor(TENSOR.tolist(), device='cuda')",
    "torch.cat([TENSOR.cuda(), TENSOR.cuda()])",
    "torch.stack([t.cuda() for t in (TENSOR, TENSOR)])",
    "(TENSOR.pin_memory().cuda(non_blocking=True))",
    "torch.nn.Parameter(TENSOR.cuda(), requires_grad=False)",
    "torch.autograd.Variable(TENSOR.cuda())",
    "torch.nn.Identity()(TENSOR.cuda())",
    "(lambda *a, **k: a[0].cuda(*a[1:], **k))(TENSOR)",
)

Situation = Callable[["Maker"], "Lines"]


def _indented(lines: Lines, depth: int = 1) -> Lines:
    return ["    " * depth + line if line else line for line in lines]


# -- tensors and modules ---------------------------------------------------------------------------------


def move_a_tensor(m: Maker) -> Lines:
    """Bind a tensor, move it, and print it."""

    def body(x: str) -> Lines:
        moved = m.moved(x)
        if x.isidentifier() and m.at_top and m.chance(0.4):
            return [f"{x} = {moved}", *m.seen(x)]
        return m.bound(moved, "tensor", m.seen)

    return m.bound(m.tensor(), "tensor", body)


def move_in_an_expression(m: Maker) -> Lines:
    """Move a tensor that an expression binds."""
    expression = m.inside(m.tensor(), "tensor", m.moved)
    return m.bound(expression, "tensor", m.seen) if m.chance(0.5) else [f"print({expression})"]


SEVERAL_MOVES = _rows("""
    {x}, {y} = {x}.cuda(), {y}.cuda()
    {x}, {y} = ({x}.cuda(), {y}.cuda(non_blocking=True))
    {x}, {y} = [t.cuda() for t in ({x}, {y})]
    {x}, {y} = map(lambda t: t.cuda(), ({x}, {y}))
    {x} = {x}.cuda(); {y} = {y}.to({x}.device)
    {x} = {x}.cuda(0); {y} = {y}.cuda({x}.get_device())
    {x} = {y} = {x}.cuda()
    if True: {x} = {x}.cuda(); {y} = {y}.cuda()
    {x}, {y} = ({x}.cuda(), {y}.cuda()) if torch.cuda.is_available() else ({x}, {y})
""")


def several_at_once(m: Maker) -> Lines:
    """Move two tensors in one statement."""
    x, y = m.name("tensor"), m.name("tensor")
    form = m.one_of(
        "several moves",
        SEVERAL_MOVES,
    )
    line = form.format(x=x, y=y)
    return [f"{x}, {y} = torch.ones(3), torch.randn(3)", line, *m.seen(f"({x} + {y})")]


def use_a_device(m: Maker) -> Lines:
    """Bind a device, and use it once or twice."""
    value, kind = m.cuda_device()

    def body(device: str) -> Lines:
        uses = [use_of_device(m, device, kind)]
        if m.chance(0.4):
            uses.append(use_of_device(m, device, kind))
        return [line for use in uses for line in use]

    return m.bound(value, "int" if kind == "int" and m.chance(0.5) else "device", body)


def use_of_device(m: Maker, d: str, kind: str) -> Lines:
    """Return statements that use a device."""
    forms = [
        "print(torch.ones(3, device={d}))",
        "{t} = torch.randn(2, device={d}); print({t}, {t}.device)",
        "print(torch.ones(2).to({d}))",
        "print(torch.ones(2).to(device={d}) + torch.ones(2).to({d}))",
        "print(torch.tensor([1.0], device={d}).device)",
        "{t} = torch.nn.Linear(2, 2).to({d}); print({t}(torch.ones(1, 2).to({d})))",
        "print(torch.ones(2).cuda({d}))",
        "print(torch.empty(2, device={d}).fill_(3))",
        "with torch.cuda.device({d}): print(torch.ones(1).cuda())",
        "torch.cuda.set_device({d}); print(torch.ones(1).cuda().device)",
        "torch.cuda.synchronize({d}); print('done')",
        "print(torch.ones(2).pin_memory().to({d}, non_blocking=True))",
        "print(torch.Tensor.to(torch.ones(2), {d}))",
        "{t} = (lambda t, w: t.to(w)); print({t}(torch.ones(2), {d}))",
        "{t} = dict(device={d}); print(torch.ones(2, **{t}))",
        "{t} = [torch.ones(1).to(w) for w in [{d}]]; print({t}[0])",
        "{t} = torch.Generator(device={d}); print({t}.device)",
        "{t} = torch.ones(2)\nif {d} is not None: {t} = {t}.to({d})\nprint({t})",
        "def {f}(where): return torch.zeros(2, device=where)\nprint({f}({d}))",
        "def {f}(t, where={d}): return t.to(where)\nprint({f}(torch.ones(2)))",
        "def {f}(t, where=None): return t.to(where or {d})\nprint({f}(torch.ones(2)))",
    ]
    if kind != "int":
        forms += [
            "print(torch.device({d}))",
            "print(str({d}).split(':')[0])",
            "print(str({d}).startswith('cuda') or 'cpu' in str({d}))",
            "print(torch.device({d}).type)",
            "with torch.autocast(torch.device({d}).type): print(torch.ones(1, device={d}).sum())",
        ]
    if kind == "device":
        forms += [
            "print({d}.type)",
            "with {d}: print(torch.ones(2).device)",
            "print(torch.ones(1, device={d}).device.type == {d}.type)",
            "if {d}.type == 'cuda': torch.cuda.synchronize({d})\nprint('on', {d}.type)",
            "if {d}.type == 'cuda': torch.cuda.set_device({d})\nprint('on', {d}.type)",
            "print(torch.ones(1).to(f'{{{d}.type}}'))",
        ]
    if kind == "str":
        forms += [
            "print(torch.ones(1).to(torch.device({d})))",
            "if {d} != 'cpu': torch.cuda.synchronize()\nprint('synchronized')",
            "if 'cuda' in {d}: print(torch.ones(1).cuda().device)\nelse: print(torch.ones(1).device)",
            "if {d}.startswith('cuda'): torch.cuda.set_device(torch.device('cuda', 1))\nprint(1)",
            "print(int(({d} + ':0').split(':')[1]) >= 0)",
            "{t} = {d}.split(':'); print(len({t}) > 0, torch.ones(1).to({t}[0]))",
        ]
    if kind == "int":
        forms += [
            "print(torch.device('cuda', {d}))",
            "print(torch.ones(1).to(f'cuda:{{{d}}}'))",
            "print(torch.ones(1).to('cuda:%d' % {d}))",
            "print(torch.ones(1).to('cuda:' + str({d})))",
            "print(torch.ones(1).cuda(int({d})))",
            "if {d} >= 0: print(torch.ones(1).cuda({d}))",
            "print({d} + 0 >= 0, torch.ones(1, device=torch.device('cuda', {d})))",
            "print(torch.arange(4)[{d}:].sum()) if {d} == 0 else print(torch.arange(4).sum())",
        ]
    form = m.one_of("use of a device", tuple(forms))
    if form.startswith("def") and not d.isidentifier():
        form = forms[2]
    text = form.format(d=d, t=m.name("tensor"), f=m.name("function"))
    first, *rest = text.split("\n")
    return [*(first.split("; ") if not first.startswith(("if", "def", "with", "for")) else [first]), *rest]


MOVE_OF_A_MODULE = _rows("""
    {n}.cuda()
    {n}.cuda(0)
    {n}.to('cuda')
    {n}.to(0)
    {n}.cuda(device=torch.device('cuda'))
    {n}.float().cuda().eval()
    {n}.train().to(device='cuda', dtype=torch.float32)
    torch.nn.Module.cuda({n})
    [k.cuda() for k in ({n},)]
    for p in {n}.parameters(): p.data = p.data.cuda()
    {n}._apply(lambda t: t.cuda())
    {n}.cuda() if torch.cuda.is_available() else {n}
    torch.cuda.is_available() and {n}.cuda()
    if torch.cuda.is_available(): {n}.cuda()
    getattr({n}, 'cuda')()
    {n}.cuda().requires_grad_(False)
""")


PARSED_DEVICE = _blocks("""
    print(torch.ones(1).to(int({d}.split(':')[1])))

    {i} = int({d}.split(':')[-1])
    print(torch.ones(1).cuda({i}))

    {k}, {i} = {d}.split(':')
    print(torch.ones(1).to(torch.device({k}, int({i}))))

    {k}, _, {i} = {d}.partition(':')
    print(torch.ones(1).to({k}), int({i} or 0) >= 0)

    {i} = int({d}[-1])
    torch.cuda.set_device({i})
    print(torch.ones(1).cuda())

    {i} = torch.device({d}).index
    print(torch.ones(1).cuda({i}), torch.ones(1).to({d}))

    {i} = int({d}[5:])
    print(torch.ones(2)[{i} - {i}].item(), torch.ones(1).to({d}))

    {i} = {d}.replace('cuda:', '')
    print(torch.ones(1).cuda(int({i})))

    assert {d}.startswith('cuda:')
    print(torch.ones(1).to({d}))

    if {d} == 'cuda:0' or {d} == 'cuda:1': print(torch.ones(1).to({d}))
    else: print('other')
""")


def parse_a_device(m: Maker) -> Lines:
    """Take the number out of the name of a device."""
    value = m.one_of(
        "parsed device",
        ("'cuda:0'", "'cuda:1'", "f'cuda:{1}'", "'cuda:%d' % 0", "str(torch.device('cuda:1'))"),
    )
    form = m.one_of("use of a parsed device", PARSED_DEVICE)
    i, k = m.name("int"), m.name("other")
    return m.bound(value, "device", lambda d: form.format(d=d, i=i, k=k).split("\n"))


def move_a_module(m: Maker) -> Lines:
    """Bind a module, move it, and call it."""

    def body(net: str) -> Lines:
        out = m.name("tensor")
        form = m.one_of(
            "move of a module",
            MOVE_OF_A_MODULE,
        )
        use = m.one_of(
            "use of a module",
            (
                "{o} = {n}(torch.randn(3, 2).cuda())",
                "{o} = {n}(torch.ones(1, 2, device='cuda'))",
                "{o} = {n}(torch.ones(1, 2).to(next({n}.parameters()).device))",
                "with torch.no_grad(): {o} = {n}(torch.ones(1, 2).cuda())",
                "{o} = {n}(torch.rand(1, 2, device=next({n}.parameters()).device))",
            ),
        )
        return [form.format(n=net), use.format(n=net, o=out), *m.seen(out)]

    return m.bound(m.module(), "module", body)


def train_a_module(m: Maker) -> Lines:
    """Train a module, and print parameters that were kept before."""
    net, optimizer, loss, x = m.name("module"), m.name("other"), m.fresh(), m.name("tensor")
    kind = m.one_of(
        "optimizer", ("SGD({n}.parameters(), lr=0.1)", "Adam({n}.parameters())", "AdamW({n}.parameters())")
    )
    cuda = m.one_of(
        "loss", ("torch.nn.MSELoss().cuda()", "torch.nn.L1Loss().to('cuda')", "torch.nn.functional.mse_loss")
    )
    old = m.one_of(
        "kept parameters",
        (
            "[p.detach().cpu() for p in {n}.parameters()]",
            "[p.detach().clone() for p in {n}.parameters()]",
            "{{k: v.cpu() for k, v in {n}.state_dict().items()}}",
            "[p.data.cpu().numpy() for p in {n}.parameters()]",
            "next({n}.parameters()).detach().cpu()",
            "list({n}.state_dict().values())[0].cpu().numpy()",
        ),
    )
    kept = m.name("tensor")
    values = f"{kept}.values()" if old.startswith("{{") else f"[{kept}]" if not old.startswith("[") else kept
    return [
        f"{net} = torch.nn.Linear(2, 1).cuda()",
        f"{optimizer} = torch.optim.{kind.format(n=net)}",
        f"{kept} = {old.format(n=net)}",
        "for _ in range(2):",
        f"    {x} = torch.randn(4, 2).cuda()",
        f"    {loss} = ({cuda})({net}({x}), torch.zeros(4, 1).cuda())",
        f"    {optimizer}.zero_grad()",
        f"    {loss}.backward()",
        f"    {optimizer}.step()",
        f"print({loss}.item(), [float(w.sum()) for w in {values}])",
    ]


CODE_OF_A_MODULE = _blocks("""
    return self.lin(x.cuda())

    mask = torch.ones(2).cuda()
    return self.lin(x * mask)

    h = torch.zeros(1, 2).cuda()
    return self.lin(x + h)

    h = torch.zeros(1, 2, device='cuda')
    return self.lin(x + h)

    h = torch.cuda.FloatTensor(1, 2).fill_(0)
    return self.lin(x + h)

    if x.is_cuda: h = torch.cuda.FloatTensor([1, 2])
    else: h = torch.FloatTensor([1, 2])
    return self.lin(x + h)

    return self.lin(x.to(self.lin.weight.device)) + torch.ones(1).cuda()

    device = x.device
    return self.lin(x) + torch.ones(1).to(device)

    return self.lin(x) + torch.ones(1).cuda(x.get_device())

    return self.lin(x) + torch.ones(1).cuda(self.lin.weight.get_device())

    with torch.cuda.device_of(x):
        return self.lin(x) + torch.ones(1).cuda()
""")


def define_a_module(m: Maker) -> Lines:
    """Define a module that moves something in its `forward`, and call it."""
    kind = m.name("class")
    inner = m.one_of(
        "code of a module",
        CODE_OF_A_MODULE,
    )
    extra = m.one_of(
        "extra method",
        (
            "",
            "def get_device(self):\n    return self.lin.weight.device",
            "@property\ndef device(self):\n    return next(self.parameters()).device",
            "def device(self):\n    return 7",
            "def cuda(self, device=None):\n    self.moved = True\n    return super().cuda(device)",
        ),
    )
    use = "print({k}().cuda()(torch.ones(1, 2).cuda()))"
    if "get_device" in extra:
        use = "q1 = {k}().cuda(); print(torch.zeros(1, device=q1.get_device()), q1(torch.ones(1, 2).cuda()))"
    elif "property" in extra:
        use = "q1 = {k}().cuda(); print(torch.zeros(1, device=q1.device), q1(torch.ones(1, 2).cuda()))"
    elif "moved" in extra:
        use = "q1 = {k}().cuda(); print(q1.moved, q1(torch.ones(1, 2).cuda()))"
    elif "return 7" in extra:
        use = "q1 = {k}().cuda(); print(q1.device(), q1(torch.ones(1, 2).cuda()))"
    return [
        f"class {kind}(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.lin = torch.nn.Linear(2, 2)",
        "    def forward(self, x):",
        *_indented(inner.split("\n"), 2),
        *_indented(extra.split("\n") if extra else []),
        *use.format(k=kind).split("; "),
    ]


# -- objects with their own methods ----------------------------------------------------------------------


OWN_CLASS = _blocks("""
    def cuda(self, *a, **k):
        self.x = self.x.cuda()
        return self

    def cuda(self, *a, **k):
        return type(self)(self.x.cuda())

    def cuda(self, *a, **k):
        self.x = self.x.cuda()
        return self
    def to(self, device):
        self.x = self.x.to(device)
        return self

    def to(self, form):
        return {'list': self.x.tolist()}[form]
    def cuda(self, *a, **k):
        self.x = self.x.cuda()
        return self

    def cuda(self, *a, **k):
        self.__dict__.update(x=self.x.cuda())
        return self
    def get_device(self):
        return self.x.device

    def __getattr__(self, name):
        if name != 'cuda': raise AttributeError(name)
        return lambda *a, **k: type(self)(self.x.cuda())
""")

USE_OF_AN_OWN_OBJECT = _blocks("""
    print({o}{c}.x)

    {t} = {o}{c}
    print({t}.x)

    print([b{c} for b in [{o}]][0].x)

    print((lambda b: b{c})({o}).x)

    for b in [{o}]: b = b{c}
    print(b.x)

    print(getattr({o}, 'cuda')().x)

    print((lambda b={o}: b{c})().x)

    print({{0: b{c} for b in ({o},)}}[0].x)

    print(next(b{c} for b in ({o},)).x)

    {t} = list(map(lambda b: b{c}, [{o}]))
    print({t}[0].x)

    {t} = {o}{c} if torch.cuda.is_available() else {o}
    print({t}.x)

    {t} = {o}.cuda
    print({t}().x)

    with torch.no_grad(): print({o}{c}.x)
""")


def own_object(m: Maker) -> Lines:
    """Move an object of the program's own class that has `cuda`, and maybe `to` and `device`."""
    kind = m.name("class")
    define = m.one_of(
        "own class",
        OWN_CLASS,
    )
    base = m.one_of("base of an own class", ("", "", "", "(object)", "(dict)"))
    where = m.chance(0.2)
    lines = [
        f"class {kind}{base}:",
        "    def __init__(self, x):",
        "        self.x = x",
        *_indented(define.split("\n")),
    ]
    start: Lines = []
    if where and not m.in_async:
        m.files["own"] = "\n".join(["import torch", "", *lines, ""])
        lines, start = [f"from own import {kind}"], []
    call = m.one_of("own cuda", (".cuda()", ".cuda()", ".cuda(0)", ".cuda(non_blocking=True)", ".cuda(None)"))

    def body(o: str) -> Lines:
        form = m.one_of(
            "use of an own object",
            USE_OF_AN_OWN_OBJECT,
        )
        return form.format(o=o, t=m.name("own"), c=call).split("\n")

    made = f"{kind}({m.tensor()})"
    if m.chance(0.25):
        return [*lines, f"print({m.inside(made, 'own', lambda o: o + call)}.x)"]
    if not m.at_top and m.chance(0.3):
        annotated = m.name("own")
        f = m.name("function")
        return [*lines, f"def {f}({annotated}: {kind}):", *_indented(body(annotated)), f"{f}({made})", *start]
    return [*lines, *m.bound(made, "own", body)]


USE_OF_AN_OVERRIDDEN_CUDA = _blocks("""
    {n}.cuda()
    print({n}(torch.ones(1, 2).cuda()))

    print({n}.cuda()(torch.ones(1, 2, device='cuda')))

    print((lambda q: q.cuda())({n})(torch.ones(1, 2).cuda()))

    print([q.cuda() for q in [{n}]][0](torch.ones(1, 2).cuda()))

    {t} = torch.nn.ModuleList([{n}])
    {t}[0].cuda()
    print({t}[0](torch.ones(1, 2).cuda()))

    for {t} in [{n}]: {t}.cuda()
    print({t}(torch.ones(1, 2).cuda()))
""")


def overridden_cuda(m: Maker) -> Lines:
    """Move a module whose class overrides `cuda`."""
    kind = m.name("class")
    lines = [
        f"class {kind}(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.lin = torch.nn.Linear(2, 2)",
        "        self.table = torch.ones(2)",
        "    def cuda(self, *a, **k):",
        "        super().cuda(*a, **k)",
        "        self.table = self.table.cuda()",
        "        return self",
        "    def forward(self, x):",
        "        return self.lin(x) * self.table",
    ]

    def body(net: str) -> Lines:
        form = m.one_of(
            "use of an overridden cuda",
            USE_OF_AN_OVERRIDDEN_CUDA,
        )
        return form.format(n=net, t=m.name("module")).split("\n")

    return [*lines, *m.bound(f"{kind}()", "module", body)]


# -- copies ----------------------------------------------------------------------------------------------


COPY = _rows("""
    {x}.cuda()
    {x}.to('cuda')
    {x}.cuda().view(-1)
    {x}.cuda()[0]
    torch.nn.Parameter({x}.cuda())
    {x}.cuda().detach()
    {x}.cuda(non_blocking=True)
    {x}.cuda().cpu()
    {x}.to(torch.device('cuda'))
    {x}.cuda() * 1
    {x}.cuda().clone()
    torch.as_tensor({x}, device='cuda')
    {x}.type(torch.cuda.FloatTensor)
    [t.cuda() for t in [{x}]][0]
""")

CHANGE_IN_PLACE = _rows("""
    {c}.add_(1)
    {c} += 1
    {c}[0] = 7
    {c}.fill_(3)
    {c}.data.mul_(2)
    {c}.zero_()
    {c}[...] = 5
    torch.add({c}, 1, out={c})
    {c}.view(-1)[0] += 1
    torch.nn.init.zeros_({c})
    {c}.copy_(torch.full_like({c}, 9))
    {c} *= 2
    for _ in range(2): {c}.add_(1)
    (lambda t: t.add_(1))({c})
""")


def changed_in_place(m: Maker) -> Lines:
    """Change a copy or its source in place, and print both."""
    x, y = m.name("tensor"), m.name("tensor")
    copy = m.one_of(
        "copy",
        COPY,
    )
    changed = m.random.choice((x, y))
    change = m.one_of(
        "change in place",
        CHANGE_IN_PLACE,
    )
    line = change.format(c=changed)
    if not line.startswith("for"):
        line = f"with torch.no_grad(): {line}"
    source = m.one_of("source of a copy", ("torch.ones(3)", "torch.zeros(2, 2)", "torch.arange(4.0)"))
    lines = [f"{x} = {source}", f"{y} = {copy.format(x=x)}", line]
    if m.chance(0.2):
        lines = [f"{x} = {source}", "for _ in range(2):", f"    {y} = {copy.format(x=x)}", f"    {line}"]
    return [*lines, f"print({x}.tolist(), {y}.tolist())"]


def changed_attribute(m: Maker) -> Lines:
    """Change the copy of an attribute in place."""
    kind = m.name("class")
    h = m.name("tensor")
    first = m.one_of(
        "copy of an attribute",
        (
            "h = self.H.cuda()",
            "h = self.H.to('cuda')",
            "h, _ = self.H.cuda(), 1",
            "h = self.H.cuda().view(-1)",
        ),
    ).replace("H", h)
    change = m.one_of("change of a copy", ("h += 1", "h.add_(1)", "h[0] = 7", "h.mul_(2)", "self.change(h)"))
    return [
        f"class {kind}:",
        "    def __init__(self):",
        f"        self.{h} = torch.ones(2)",
        "    def change(self, t):",
        "        t.sub_(1)",
        "    def run(self):",
        f"        {first}",
        f"        {change}",
        "        return h",
        f"o = {kind}()",
        f"print(o.run().tolist(), o.{h}.tolist())",
    ]


COPY_TO_THE_CPU = _rows("""
    {x}.cpu()
    {x}.cpu().numpy()
    {x}.detach().cpu().numpy()
    {x}.to('cpu')
    [{x}.cpu()]
    {x}.cpu()[0]
    np.asarray({x}.cpu())
    {x}.cpu().clone()
    {{'a': {x}.cpu()}}
    {x}.data.cpu()
    {x}.cpu().numpy().copy()
    {x}.tolist()
""")


def kept_views(m: Maker) -> Lines:
    """Copy a tensor from CUDA to the CPU, and change it later."""
    x, y = m.name("tensor"), m.name("tensor")
    copy = m.one_of(
        "copy to the CPU",
        COPY_TO_THE_CPU,
    )
    m.need("import numpy as np")
    change = m.one_of(
        "later change",
        ("{x} += 1", "{x}.add_(1)", "{x}[0] = 7", "{x}.zero_()", "{x}.copy_(torch.full_like({x}, 4))"),
    )
    subclass = ".as_subclass(type('Labels', (torch.Tensor,), {}))" if m.chance(0.2) else ""
    if m.chance(0.3):
        return [
            f"{x} = torch.zeros(2){subclass}.cuda()",
            f"{y} = []",
            "for _ in range(3):",
            f"    {change.format(x=x)}",
            f"    {y}.append({copy.format(x=x)})",
            f"print({y}, {x}.tolist())",
        ]
    return [
        f"{x} = torch.ones(3){subclass}.cuda()",
        f"{y} = {copy.format(x=x)}",
        change.format(x=x),
        f"print({y}, {x}.tolist())",
    ]


TENSOR_OF_AN_ARRAY = _rows("""
    torch.from_numpy({a}).cuda()
    torch.from_numpy({a}).to('cuda')
    torch.as_tensor({a}, device='cuda')
    torch.tensor({a}, device='cuda')
    torch.tensor({a}).cuda()
    torch.cuda.FloatTensor({a})
    torch.from_numpy({a}).float().cuda()
    torch.cuda.FloatTensor({a}.tolist())
""")


def numpy_arrays(m: Maker) -> Lines:
    """Move a tensor made of an array, and change one of them."""
    m.need("import numpy as np")
    a, x = m.name("tensor"), m.name("tensor")
    make = m.one_of(
        "tensor of an array",
        TENSOR_OF_AN_ARRAY,
    )
    change = m.one_of(
        "change of an array", ("{a}[:] = 3", "{a} += 1", "pass", "{a}.fill(2)", "{x} += 1", "{a}[0] = 9")
    )
    return [
        f"{a} = np.ones(3, dtype=np.float32)",
        f"{x} = {make.format(a=a)}",
        change.format(a=a, x=x),
        f"print({x}.tolist(), {a}.tolist(), {x}.device)",
    ]


# -- guards, flags and refusals --------------------------------------------------------------------------

_TESTS = (
    "torch.cuda.is_available()",
    "torch.cuda.is_available() and True",
    "torch.cuda.device_count() > 0",
    "torch.cuda.is_available() == True",
    "True and torch.cuda.is_available()",
    "bool(torch.cuda.device_count())",
    "not not torch.cuda.is_available()",
)


GUARD = _blocks("""
    if {t}: {x} = {x}.cuda()

    if {t}:
        {x} = {x}.cuda()
    else:
        {x} = {x} + 0

    if not ({t}):
        pass
    else:
        {x} = {x}.cuda()

    {x} = {x}.cuda() if {t} else {x}

    {x} = ({t} and {x}.cuda()) or {x}

    if {t}: {y} = {x}.cuda()
    else: {y} = {x}
    {x} = {y}

    if {t}:
        {y} = {x}.cuda()
    {x} = {y} * 1

    {f} = {t}
    if {f}: {x} = {x}.cuda()

    {f} = {t}
    {x} = {x}.cuda() if {f} else {x}

    try:
        {x} = {x}.cuda()
    except (RuntimeError, AssertionError):
        pass

    while {t}:
        {x} = {x}.cuda()
        break

    assert {t}
    {x} = {x}.cuda()

    assert {t}, 'no GPU'
    {x} = {x}.cuda()

    if {t}: {x} = {x}.cuda()
    {x} = {x}.cuda()

    {f} = {t}
    if not {f}: raise SystemExit('no GPU')
    {x} = {x}.cuda()

    if {t}:
        {x} = {x}.cuda()
    elif {t}:
        {x} = {x}.cpu()

    match {t}:
        case True: {x} = {x}.cuda()
        case _: pass

    {x} = {{True: {x}.cuda, False: {x}.cpu}}[{t}]()

    {x} = [{x}.cpu, {x}.cuda][{t}]()
""")


def guards(m: Maker) -> Lines:
    """Move a tensor under a test for CUDA."""
    x = m.name("tensor")
    test = m.one_of("test", _TESTS)
    form = m.one_of(
        "guard",
        GUARD,
    )
    text = form.format(t=test, x=x, y=m.name("tensor"), f=m.name("flag"))
    return [f"{x} = {m.tensor()}", *text.split("\n"), *m.seen(x)]


GUARD_OF_TWO_NAMES = _blocks("""
    if {t}: {x}, {y} = torch.ones(2).cuda(), torch.zeros(2).cuda()

    if {t}:
        {x} = torch.ones(2).cuda()
        {y} = {x} + 1

    if {t}:
        {x}, {y} = (w.cuda() for w in torch.ones(2, 2))
""")


def two_names_in_a_guard(m: Maker) -> Lines:
    """Bind two names under a test for CUDA only."""
    x, y = m.name("tensor"), m.name("tensor")
    form = m.one_of(
        "guard of two names",
        GUARD_OF_TWO_NAMES,
    )
    test = m.one_of("test", _TESTS)
    return [*form.format(t=test, x=x, y=y).split("\n"), f"print({x}, {y}.sum())"]


REFUSAL = _blocks("""
    {x} = 'cuda'
    if {x} == 'cuda' and not torch.cuda.is_available(): raise ValueError('no GPU')

    import argparse
    {x} = argparse.Namespace(device='cuda')
    if {x}.device == 'cuda' and not torch.cuda.is_available():
        raise ValueError('no GPU')

    if not torch.cuda.is_available():
        import sys  # to stop
        print('no GPU'); sys.exit(1)

    def {x}():
        if torch.cuda.is_available(): return True
        raise RuntimeError('no GPU')
    {x}()

    {x} = torch.cuda.is_available()
    assert {x}

    try:
        torch.cuda.current_device()
    except AssertionError:
        raise RuntimeError('no GPU')

    if not torch.cuda.is_available(): raise RuntimeError('no GPU')

    if not torch.cuda.is_available():
        raise SystemExit('no GPU')

    if not torch.cuda.is_available():
        import sys
        sys.exit('no GPU')

    assert torch.cuda.is_available()

    assert torch.cuda.is_available(), 'no GPU'

    assert torch.cuda.device_count() > 0, 'no GPU'

    if torch.cuda.device_count() == 0: raise RuntimeError('no GPU')

    if torch.cuda.device_count() < 1:
        raise ValueError('no GPU')

    torch.cuda.is_available() or exit('no GPU')

    if not torch.cuda.is_available():
        print('no GPU')
        raise SystemExit(1)

    if torch.cuda.is_available():
        pass
    else:
        raise RuntimeError('no GPU')

    if 1 > 2:
        pass
    elif not torch.cuda.is_available():
        raise RuntimeError('no GPU')

    if not torch.cuda.is_available(): raise RuntimeError('no GPU')
    elif 1 > 2:
        pass

    if not torch.cuda.is_available():
        raise RuntimeError('no GPU')
    elif 1:
        pass
    else:  # or else
        pass

    if 1 > 2:
        pass
    elif not torch.cuda.is_available():
        raise KeyError
    else:  # or else
        pass

    {x} = torch.ones(1).cuda()
    assert {x}.is_cuda

    {x} = torch.ones(1).cuda()
    assert {x}.device.type == 'cuda'

    {x} = torch.ones(1).cuda()
    assert 'cuda' in str({x}.device)

    {x} = torch.ones(1).cuda()
    if not {x}.is_cuda: raise TypeError('not on CUDA')

    {x} = torch.device('cuda')
    assert {x}.type == 'cuda'
""")


def refusals(m: Maker) -> Lines:
    """Stop without CUDA."""
    form = m.one_of(
        "refusal",
        REFUSAL,
    )
    x = m.name("tensor")
    y = m.name("tensor")
    after = [f"{y} = {m.moved('torch.ones(2)')}", *m.seen(y)] if m.chance(0.6) else ["print('on')"]
    return [*form.format(x=x).split("\n"), *after]


CAUGHT_REFUSAL = _rows("""
    if not torch.cuda.is_available(): raise RuntimeError('no GPU')
    assert torch.cuda.is_available()
    if torch.cuda.device_count() < 1: raise ImportError('no GPU')
    torch.cuda.current_device()
    torch.cuda.init()
    torch.ones(1).cuda()
    torch.zeros(1, device='cuda')
    torch.cuda.get_device_name(0)
""")


def refusals_that_are_branches(m: Maker) -> Lines:
    """Catch the error that a machine without CUDA raises, and take another path."""
    x = m.name("tensor")
    refusal = m.one_of(
        "caught refusal",
        CAUGHT_REFUSAL,
    )
    return [
        "try:",
        f"    {refusal}",
        f"    {x} = 'gpu'",
        m.one_of("except", ("except Exception:", "except (RuntimeError, ImportError, AssertionError):")),
        f"    {x} = 'cpu'",
        f"print('path', {x})",
    ]


EARLY_RETURN = _blocks("""
    if torch.cuda.is_available(): return x.cuda()
    raise RuntimeError('no GPU')

    if torch.cuda.is_available():
        return x.cuda()
    else:
        raise RuntimeError('no GPU')

    if torch.cuda.is_available(): return x.cuda()
    return x

    if not torch.cuda.is_available(): return x
    return x.cuda()

    if not torch.cuda.is_available(): raise RuntimeError('no GPU')
    return x.cuda()

    assert torch.cuda.is_available()
    return x.cuda()

    try:
        return x.cuda()
    finally:
        torch.cuda.synchronize()

    return x.cuda() if torch.cuda.is_available() else x

    for d in range(torch.cuda.device_count()):
        return x.cuda(d)
    raise RuntimeError('no GPU')

    for d in ['cuda', 'cpu']:
        return x.to(d)
""")


def early_return(m: Maker) -> Lines:
    """Return early with CUDA, or without it."""
    f = m.name("function")
    form = m.one_of(
        "early return",
        EARLY_RETURN,
    )
    return [f"def {f}(x):", *_indented(form.split("\n")), *m.seen(f"{f}({m.tensor()})")]


FLAG = _blocks("""
    {a} = __import__('types').SimpleNamespace(cuda={on}, device='cuda', gpu=0, no_cuda={off})

    {a} = __import__('argparse').Namespace(cuda={on}, no_cuda={off}, device=None, gpu=None)

    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument('--cuda', type=bool, default={on})
    parser.add_argument('--no_cuda', action='store_true', default={off})
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--gpu', type=int, default=0)
    {a} = parser.parse_args([])

    class {a}:
        cuda = {on}
        no_cuda = {off}
        device = 'cuda'
        gpu = 0

    {a} = type('A', (), dict(cuda={on}, no_cuda={off}, device='cuda', gpu=0))()
""")

CHOICE_BY_A_FLAG = _blocks("""
    {d} = torch.device('cuda' if {a}.cuda else 'cpu')

    {d} = torch.device('cuda' if torch.cuda.is_available() and not {a}.no_cuda else 'cpu')

    {d} = 'cuda' if {a}.cuda and torch.cuda.is_available() else 'cpu'

    {a}.cuda = {a}.cuda and torch.cuda.is_available()
    {d} = torch.device('cuda' if {a}.cuda else 'cpu')

    if {a}.cuda:
        {d} = torch.device('cuda')
    else:
        {d} = torch.device('cpu')

    if {a}.no_cuda:
        {d} = 'cpu'
    else:
        {d} = torch.device('cuda')

    {d} = torch.device('cpu')
    if {a}.cuda: {d} = torch.device('cuda', 0)

    {d} = ['cpu', 'cuda'][{a}.cuda]

    {d} = {{True: 'cuda', False: 'cpu'}}[{a}.cuda]

    {d} = {a}.cuda and 'cuda' or 'cpu'
""")

USE_BESIDE_A_FLAG = _blocks("""
    {x} = torch.ones(2).to({d})
    print({x})

    {x} = torch.ones(2).cuda()
    print({x}, torch.zeros(1).to({d}))

    {x} = torch.ones(2)
    if {a}.cuda: {x} = {x}.cuda()
    print({x})

    {x} = torch.ones(2).cuda() if {a}.cuda else torch.ones(2)
    print({x}, {x}.to({d}).device)

    {x} = torch.randn(2, device={d})
    print({x})
    print(torch.ones(1).cuda())

    {x} = torch.nn.Linear(1, 1).to({d})
    print({x}(torch.ones(1).to({d})))

    if not {a}.no_cuda: torch.cuda.manual_seed(1)
    {x} = torch.ones(1).to({d})
    print({x})

    {x} = torch.zeros(2, device='cuda')
    print({x} + torch.ones(2).to({d}).to({x}.device))

    torch.cuda.synchronize()
    {x} = torch.ones(1, device={d})
    print({x})

    {x} = torch.cuda.FloatTensor([1, 2])
    print({x}, {d})
""")


def flags(m: Maker) -> Lines:
    """Let a flag of the user choose, maybe the CPU on purpose."""
    a, x = m.name("other"), m.name("tensor")
    on = m.chance(0.5)
    setting = m.one_of(
        "flag",
        FLAG,
    ).format(a=a, on=on, off=not on)
    d = m.name("device")
    choice = m.one_of(
        "choice by a flag",
        CHOICE_BY_A_FLAG,
    ).format(a=a, d=d)
    use = m.one_of(
        "use beside a flag",
        USE_BESIDE_A_FLAG,
    ).format(a=a, d=d, x=x)
    return [*setting.split("\n"), *choice.split("\n"), *use.split("\n")]


DEFAULT_DEVICE = _rows("""
    ='cuda'
    =None
    =0
    =torch.device('cuda')
    : str = 'cuda'
    : object = None
    ='cuda:0'
    =-1
""")

USE_OF_A_DEFAULT = _blocks("""
    {d} = {d} or 'cuda'
    return x.to({d})

    {d} = {d} if {d} else 'cuda'
    return x.to({d})

    if {d} is None: {d} = 'cuda'
    return x.to({d})

    if not {d}: {d} = torch.device('cuda')
    return x.to({d})

    return x.to({d} or 'cuda')

    return x.to('cuda' if {d} is None else {d})

    return x.cuda()

    return x.cuda() + torch.ones(1).cuda()

    if {d} is None: return x.cuda()
    return x.to({d})
""")

CALL_WITH_A_DEVICE = _rows("""
    {f}(torch.ones(2))
    {f}(torch.ones(2), 'cuda')
    {f}(torch.ones(2), {d}='cuda')
    {f}(torch.ones(2), {d}=0)
    {f}(torch.ones(2), torch.device('cuda'))
    {f}(torch.ones(2), 'cpu')
    {f}(torch.ones(2), None)
""")


def devices_by_default(m: Maker) -> Lines:
    """Define a function with a device as an argument, by default CUDA."""
    f, d = m.name("function"), m.name("device")
    default = m.one_of(
        "default device",
        DEFAULT_DEVICE,
    )
    use = m.one_of(
        "use of a default",
        USE_OF_A_DEFAULT,
    ).format(d=d)
    if default == "=-1":
        use = m.one_of(
            "use of -1", ("return x.cuda({d}) if {d} >= 0 else x", "return x.to({d}) if {d} != -1 else x")
        ).format(d=d)
    call = m.one_of(
        "call with a device",
        CALL_WITH_A_DEVICE,
    ).format(f=f, d=d)
    if default == "=-1":
        call = f"{f}(torch.ones(2))" if m.chance(0.5) else f"{f}(torch.ones(2), 0)"
    elif call.endswith("None)") and use.startswith("return x.to('cuda' if"):
        pass
    return [f"def {f}(x, {d}{default}):", *_indented(use.split("\n")), f"print({call})"]


DEVICE_OF_AN_OBJECT = _blocks("""
    self.D = D or 'cuda'

    self.D = torch.device(D or 'cuda')

    self.D = D if D is not None else torch.device('cuda')

    self.D = 'cuda'

    self.D = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    self.D, self.other = 'cuda', 1

    self.D = D
    if self.D is None: self.D = 'cuda'

    self.__dict__['D'] = 'cuda'

    self.D = 0 if D is None else D
""")

USE_OF_AN_OBJECTS_DEVICE = _blocks("""
    return torch.ones(2).to(self.D)

    return torch.ones(2, device=self.D)

    return torch.ones(2).cuda()

    d = self.D
    return torch.ones(2).to(d)

    return torch.ones(2).to(self.D) + torch.ones(2).cuda()

    D = self.D
    return [torch.ones(1).to(D) for _ in range(2)][1]

    with torch.cuda.device(0):
        return torch.ones(2).cuda()
""")


def device_of_an_object(m: Maker) -> Lines:
    """Define a class whose objects keep a device."""
    kind, d = m.name("class"), m.name("device")
    init = m.one_of(
        "device of an object",
        DEVICE_OF_AN_OBJECT,
    ).replace("D", d)
    run = m.one_of(
        "use of an object's device",
        USE_OF_AN_OBJECTS_DEVICE,
    ).replace("D", d)
    argument = m.one_of(
        "argument of an object", ("", "'cuda'", "{d}='cuda'", "None", "{d}=torch.device('cuda')")
    ).format(d=d)
    return [
        f"class {kind}:",
        f"    def __init__(self, {d}=None):",
        *_indented(init.split("\n"), 2),
        "    def run(self):",
        *_indented(run.split("\n"), 2),
        f"print({kind}({argument}).run())",
    ]


# -- functions of torch.cuda -----------------------------------------------------------------------------

_CALLS = (
    "torch.cuda.synchronize()",
    "torch.cuda.synchronize(0)",
    "torch.cuda.synchronize(device=1)",
    "torch.cuda.empty_cache()",
    "torch.cuda.set_device(0)",
    "torch.cuda.set_device(1)",
    "torch.cuda.set_device('cuda:1')",
    "torch.cuda.manual_seed(1)",
    "torch.cuda.manual_seed_all(1)",
    "torch.cuda.reset_peak_memory_stats()",
    "torch.cuda.init()",
    "torch.cuda.ipc_collect()",
    "torch.cuda.seed()",
    "torch.cuda.nvtx.range_push('a')",
    "torch.cuda.set_per_process_memory_fraction(0.5)",
    "torch.cuda.set_rng_state(torch.cuda.get_rng_state())",
    "torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())",
    "torch.backends.cudnn.benchmark = True",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.cuda.get_device_properties(0)",
    "torch.cuda.get_device_name()",
    "torch.cuda.get_device_capability(0)",
    "torch.cuda.mem_get_info()",
    "torch.cuda.memory_allocated()",
    "torch.cuda.max_memory_allocated(0)",
    "torch.cuda.current_device()",
    "torch.cuda.current_stream()",
)


FORM_OF_A_CALL = _blocks("""
    {c}

    {c}

    if True: {c}

    if 1 > 2: pass
    else: {c}

    for _ in range(2): {c}

    try:
        {c}
    finally:
        print('finally')

    with torch.no_grad(): {c}

    print('before'); {c}

    {c}; {c}

    if torch.cuda.is_available(): {c}

    if not False: {c}

    def {f}(): {c}
    {f}()

    def {f}():
        '''Says.'''
        {c}
    {f}()
""")


def functions_of_cuda(m: Maker) -> Lines:
    """Call a function of torch.cuda for its effect."""
    call = m.one_of("call", _CALLS)
    form = m.one_of(
        "form of a call",
        FORM_OF_A_CALL,
    ).format(c=call, f=m.name("function"))
    return [*form.split("\n"), "print(torch.ones(1).cuda(), torch.rand(2, device='cuda'))"]


ALIAS = _blocks("""
    {n} = torch.cuda.synchronize
    {n}()

    def {g}({n}=torch.cuda.synchronize): {n}()
    {g}()

    {n} = {{'sync': torch.cuda.synchronize}}
    {n}['sync']()

    {n} = __import__('functools').partial(torch.cuda.synchronize, 0)
    {n}()

    {n} = torch.cuda
    {n}.synchronize()

    from torch import cuda as {n}
    {n}.synchronize()
    print(torch.ones(1).cuda())

    import torch.cuda as {n}
    {n}.synchronize()

    from torch.cuda import synchronize as {n}
    {n}()

    from torch.cuda import FloatTensor as {n}
    print({n}([1.0]))

    from torch.cuda import is_available as {n}
    print(torch.ones(1).to('cuda' if {n}() else 'cpu'))

    {n} = torch.cuda.FloatTensor
    print({n}([1.0, 2.0]).sum())

    {n} = getattr(torch.cuda, 'FloatTensor')
    print({n}([1.0]))

    {n} = getattr(torch, 'cuda')
    {n}.synchronize()

    getattr(torch.cuda, 'synchronize')()

    {n} = torch.cuda.is_available
    print(torch.ones(1).to('cuda' if {n}() else 'cpu'))

    {n} = torch.cuda.is_available() and torch.cuda.synchronize
    if {n}: {n}()

    {n} = torch.device
    print(torch.ones(1).to({n}('cuda')))

    {n} = __import__('functools').partial(torch.device, 'cuda')
    print(torch.ones(1).to({n}()))

    {n} = __import__('functools').partial(torch.ones, device='cuda')
    print({n}(2))

    {n} = torch.Tensor.cuda
    print({n}(torch.ones(2)))

    {n} = torch.ones(2).cuda
    print({n}())

    {n} = lambda t: t.cuda()
    print({n}(torch.ones(2)))

    {n} = lambda: torch.ones(1).cuda()
    print({n}())
    {d} = torch.device('cuda')
    print({d})

    {n} = [torch.cuda.synchronize, torch.cuda.empty_cache]
    for {g} in {n}: {g}()

    {n} = torch.cuda.current_device
    print(torch.ones(1).to({n}()))

    {n} = torch.cuda.manual_seed_all
    {n}(3)
    print(torch.rand(1, device='cuda'))

    def {n}(*a, **k): return torch.cuda.synchronize(*a, **k)
    {n}(0)

    class {g}:
        {n} = staticmethod(torch.cuda.synchronize)
    {g}.{n}()

    import atexit
    atexit.register(torch.cuda.synchronize)

    {n} = torch.cuda.Event
    {g} = {n}(enable_timing=True)
    {g}.record()

    {n} = torch.cuda.Stream
    {g} = {n}()
    {g}.synchronize()
""")


def aliases(m: Maker) -> Lines:
    """Call a function of torch.cuda under another name."""
    n = m.name("function")
    form = m.one_of(
        "alias",
        ALIAS,
    )
    text = form.format(n=n, g=m.name("function"), d=m.name("device"))
    return [*text.split("\n"), "print('end')"]


SELECTION = _blocks("""
    torch.cuda.set_device({n})
    print(torch.ones(1).cuda())

    torch.cuda.set_device({n})
    print(torch.ones(1).to({n}))

    torch.cuda.set_device({n})
    print(torch.nn.Linear(1, 1).to({n})(torch.ones(1).cuda({n})))

    with torch.cuda.device({n}):
        print(torch.ones(1).cuda())

    with torch.cuda.device({n}): print(torch.ones(1, device='cuda'))

    torch.cuda.set_device({n})
    print(torch.randn(2, device={n}), {n} * 2)

    torch.cuda.set_device(torch.device('cuda', {n}))
    print(torch.ones(1).cuda(), {n} + 1)

    with torch.cuda.device('cuda:%d' % {n}): print(torch.zeros(1).cuda())

    if {n} is not None:
        torch.cuda.set_device({n})
        print(torch.ones(1).cuda({n}))
    else:
        print(0)

    print(torch.ones(1).cuda({n}), list(range(3))[{n}])

    torch.cuda.set_device({n}); torch.manual_seed({n}); print(torch.rand(1, device='cuda'))

    torch.cuda.set_device({n})
    print(torch.device('cuda', {n}), torch.device('cuda', torch.cuda.current_device()))

    torch.cuda.set_device({n})
    {g} = torch.device(f'cuda:{{{n}}}')
    print(torch.ones(1).to({g}))

    print(torch.ones(2).to({n}, torch.float64), torch.ones(2).cuda({n}, non_blocking=True))
""")


def selected_devices(m: Maker) -> Lines:
    """Select a GPU by a number, and use the number in other ways, too."""
    value = m.one_of(
        "GPU number",
        ("0", "1", "3 % torch.cuda.device_count()", "int('1')", "len([0])", "torch.cuda.current_device()"),
    )
    form = m.one_of(
        "selection",
        SELECTION,
    )
    g = m.name("device")
    return m.bound(value, "int", lambda number: form.format(n=number, g=g).split("\n"))


COUNT_OF_GPUS = _blocks("""
    print(len(torch.utils.data.DistributedSampler(range(4), num_replicas={n}, rank=0)) > 0)

    {d} = torch.ones(4).cuda().split(4 // {n})
    print(sum(t.sum().item() for t in {d}))

    {d} = {n}
    while {d} > 1: {d} -= 1
    print(torch.ones(1).cuda({d} - 1))

    {d} = 0 if {n} == 1 else {n} - 1
    print(torch.ones(1).cuda({d}).sum())

    {d} = ['cuda:%d' % i for i in range({n})]
    print(torch.ones(1).to({d}[-1]).sum())

    {d} = {{i: torch.device('cuda', i) for i in range({n})}}
    print(torch.ones(1).to({d}[0]))

    {d} = {n} // {n}
    print({d})

    print(torch.ones(4).tensor_split({n})[0].numel() > 0)

    print(len(torch.arange(4).chunk({n})) > 0)

    print(torch.ones(4).split(4 // {n})[0].sum() >= 1)

    print(8 // {n} > 0)

    print(7 % {n} >= 0)

    {d} = [torch.device('cuda', i) for i in range({n})]
    print(torch.ones(1).to({d}[0]))

    {d} = list(range({n}))
    print(torch.ones(1).cuda({d}[0]))

    {d} = [f'cuda:{{i}}' for i in range({n})]
    print(torch.ones(1).to({d}[0]))

    for i in range({n}): torch.ones(1).cuda(i)
    print('end')

    assert {n} >= 1
    print(torch.ones(1).cuda())

    if {n} > 1:
        {d} = torch.ones(1).cuda(1)
    else:
        {d} = torch.ones(1).cuda()
    print({d}.sum())

    print(torch.ones(2).cuda({n} - 1).sum())

    print(max(1, {n}) > 0)

    {d} = {n} and torch.ones(1).cuda()
    print({d}.sum())

    if {n}: print('gpu')
    else: print('cpu')

    {d} = iter(range({n}))
    print(torch.ones(1).cuda(next({d})))

    print(sum(torch.ones(1).cuda(i).item() for i in range({n})) / {n})

    {d} = min({n}, 1)
    print(torch.ones(3).chunk({d})[0].sum())
""")


def counts(m: Maker) -> Lines:
    """Use the number of GPUs as a count."""
    n = m.name("count")
    form = m.one_of(
        "count of GPUs",
        COUNT_OF_GPUS,
    ).format(n=n, d=m.name("device"))
    source = m.one_of(
        "source of a count",
        ("torch.cuda.device_count()", "torch.cuda.device_count()", "len(range(torch.cuda.device_count()))"),
    )
    return [f"{n} = {source}", *form.split("\n")]


STREAM_OR_EVENT = _blocks("""
    {s} = torch.cuda.Stream()
    with torch.cuda.stream({s}):
        {x} = torch.ones(2).cuda()
    {s}.synchronize()
    print({x})

    {s} = torch.cuda.current_stream()
    {x} = torch.ones(2).cuda()
    {x}.record_stream({s})
    print({x})

    {s} = torch.cuda.Stream()
    {s}.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream({s}): {x} = torch.ones(2).cuda()
    torch.cuda.current_stream().wait_stream({s})
    print({x})

    {e}, {o} = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    {e}.record()
    {x} = torch.ones(1).cuda()
    {o}.record()
    torch.cuda.synchronize()
    print({e}.elapsed_time({o}).__class__.__name__, {x})

    {e} = torch.cuda.Event(enable_timing=True)
    {o} = torch.cuda.Event(enable_timing=True)
    {e}.record(); {o}.record()
    {o}.synchronize()
    print({e}.elapsed_time({o}).__class__.__name__)

    torch.cuda.current_stream().synchronize()
    print(torch.ones(1).cuda())

    {s} = torch.cuda.Stream(priority=-1)
    with torch.cuda.stream({s}): print(torch.ones(1, device='cuda'))

    with torch.cuda.stream(torch.cuda.Stream()): print(torch.ones(1).cuda())

    {s} = [torch.cuda.Stream() for _ in range(2)]
    for {e} in {s}:
        with torch.cuda.stream({e}): {x} = torch.ones(1).cuda()
    print({x})

    {e} = torch.cuda.Event()
    {e}.record()
    {e}.wait()
    print({e}.query())

    {s} = torch.cuda.Stream()
    {e} = {s}.record_event()
    {e}.synchronize()
    print('done')

    {s} = torch.cuda.default_stream()
    {s}.synchronize()
    print({s}.query())

    class Loader:
        def __init__(self):
            self.stream = torch.cuda.Stream()
        def load(self, {x}):
            with torch.cuda.stream(self.stream):
                {x} = {x}.cuda(non_blocking=True)
            torch.cuda.current_stream().wait_stream(self.stream)
            {x}.record_stream(torch.cuda.current_stream())
            return {x}
    print(Loader().load(torch.ones(2)))

    {s} = torch.cuda.Stream() if torch.cuda.is_available() else None
    if {s} is not None: {s}.synchronize()
    print('ok')

    def {o}({s}=None):
        {s} = {s} or torch.cuda.current_stream()
        {s}.synchronize()
    {o}()
    print('ok')

    def {o}():
        for {e} in range(2): pass
        return {e}
    {e} = torch.cuda.Event(enable_timing=True)
    {s} = torch.cuda.Event(enable_timing=True)
    {e}.record()
    {s}.record()
    torch.cuda.synchronize()
    print({e}.elapsed_time({s}).__class__.__name__, {o}())

    {s} = torch.cuda.current_stream
    {s}().synchronize()
    print('ok')

    {e} = {{'a': torch.cuda.Event(enable_timing=True), 'b': torch.cuda.Event(enable_timing=True)}}
    {e}['a'].record()
    {e}['b'].record()
    torch.cuda.synchronize()
    print({e}['a'].elapsed_time({e}['b']).__class__.__name__)
""")


def streams(m: Maker) -> Lines:
    """Use a stream or events."""
    s, e, x = m.name("stream"), m.name("event"), m.name("tensor")
    other = m.name("event")
    form = m.one_of(
        "stream or event",
        STREAM_OR_EVENT,
    )
    return form.format(s=s, e=e, x=x, o=other).split("\n")


TYPED_TENSOR = _blocks("""
    print(torch.cuda.FloatTensor([1.0, 2.0]))

    print(torch.cuda.FloatTensor(2, 3).fill_(1))

    print(torch.cuda.LongTensor([1, 2]).sum())

    print(torch.cuda.FloatTensor(torch.ones(2).cuda().size()).zero_())

    {t} = torch.cuda.FloatTensor
    print({t}([1.0]))

    {t} = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
    print({t}([1.0]))

    {t} = torch.cuda
    print({t}.FloatTensor([1.0]))

    print(torch.ones(2).type(torch.cuda.DoubleTensor))

    print(torch.ones(2).type('torch.cuda.LongTensor'))

    {x} = torch.ones(2).cuda()
    print(isinstance({x}, (torch.cuda.FloatTensor, torch.FloatTensor)))

    {x} = torch.ones(2).cuda()
    print(isinstance({x}, torch.cuda.FloatTensor))

    {x} = torch.ones(2).cuda()
    if isinstance({x}, torch.cuda.FloatTensor): print({x} * 2)
    else: print(0)

    {x} = torch.ones(2).cuda()
    if {x}.type() == 'torch.cuda.FloatTensor': print({x} * 2)
    else: print(0)

    {x} = torch.ones(2).cuda()
    print({x}.type())

    {x} = torch.ones(2).cuda()
    print(torch.zeros(2).type({x}.type()))

    {t} = {{True: torch.cuda.FloatTensor, False: torch.FloatTensor}}[True]
    print({t}([2.0]))

    def {f}(k=torch.cuda.FloatTensor): return k([3.0])
    print({f}())

    torch.set_default_tensor_type('torch.cuda.FloatTensor')
    print(torch.ones(2), torch.rand(2))
    torch.set_default_tensor_type('torch.FloatTensor')

    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    print(torch.zeros(2))
    torch.set_default_tensor_type(torch.FloatTensor)

    print(torch.cuda.ByteTensor([1, 0]).bool())

    {t} = 'torch.cuda.FloatTensor'
    print(torch.ones(1).type({t}))

    {x} = torch.ones(2).cuda()
    print({x}.new([1.0]), {x}.new_zeros(1), {x}.new(2, 2).fill_(0))

    print(torch.cuda.HalfTensor([1.0]).float())

    print(torch.cuda.IntTensor(3).zero_())

    {t} = [torch.cuda.FloatTensor, torch.cuda.LongTensor]
    for k in {t}: print(k([1]))

    torch.set_default_device('cuda')
    print(torch.ones(2))
    torch.set_default_device('cpu')

    with torch.device('cuda'): print(torch.ones(2))

    {t} = torch.tensor([1.0]).cuda().type
    print({t}(torch.float64))
""")


def typed_tensors(m: Maker) -> Lines:
    """Use a tensor type of CUDA."""
    t, x = m.name("other"), m.name("tensor")
    form = m.one_of(
        "typed tensor",
        TYPED_TENSOR,
    )
    return form.format(t=t, x=x, f=m.name("function")).split("\n")


RANDOM_NUMBERS = _rows("""
    torch.manual_seed(3); print(torch.randn(3).cuda())
    torch.manual_seed(3); print(torch.randn(3, device='cuda'))
    torch.cuda.manual_seed_all(3); print(torch.rand(2, device='cuda'), torch.rand(2).cuda())
    {g} = torch.Generator('cuda'); {g}.manual_seed(1); print(torch.rand(2, generator={g}, device='cuda'))
    {g} = torch.Generator('cuda').manual_seed(1); print(torch.rand(2, generator={g}, device='cuda'))
    print(torch.zeros(4).cuda().normal_())
    print(torch.zeros(4).normal_().cuda())
    print(torch.cuda.FloatTensor(4).uniform_())
    print(torch.nn.Dropout(0.5)(torch.ones(4).cuda()))
    print(torch.randperm(5, device='cuda'), torch.randint(0, 9, (2,)).cuda())
    print(torch.nn.Linear(2, 2, device='cuda').weight)
    print(torch.nn.Linear(2, 2).cuda().weight)
    print(torch.bernoulli(torch.full((4,), 0.5).cuda()))
    print(torch.multinomial(torch.ones(4).cuda(), 2))
    print(torch.nn.init.normal_(torch.empty(3).cuda()))
    print(torch.nn.init.normal_(torch.empty(3)).cuda())
    {x} = torch.ones(3).cuda(); print(torch.rand_like({x}), torch.randn_like({x}))
    {g} = torch.cuda.get_rng_state(); print(torch.rand(2, device='cuda')); torch.cuda.set_rng_state({g})
    with torch.random.fork_rng(devices=[0]): print(torch.rand(1))
    with torch.random.fork_rng(): print(torch.rand(1))
    print(torch.distributions.Normal(torch.zeros(2).cuda(), torch.ones(2).cuda()).sample())
    {x} = torch.rand(3).cuda() + torch.rand(3, device='cuda'); print({x})
""")


def random_numbers(m: Maker) -> Lines:
    """Draw random numbers, on the CPU or on a GPU."""
    g, x = m.name("other"), m.name("tensor")
    form = m.one_of(
        "random numbers",
        RANDOM_NUMBERS,
    )
    return form.format(g=g, x=x).split("; ")


LOAD = _rows("""
    torch.load({f})
    torch.load({f}, map_location='cuda')
    torch.load({f}, map_location='cuda:0')
    torch.load({f}, map_location=torch.device('cuda'))
    torch.load({f}, lambda storage, loc: storage.cuda(0))
    torch.load({f}, map_location='cpu')
    torch.load({f}, map_location={{'cuda:0': 'cuda:1'}})
    torch.load({f}, map_location=lambda storage, loc: storage)
    torch.load({f}, map_location=None)
    torch.load({f}, 'cuda')
    torch.load({f}, weights_only=False)
    torch.load({f}, map_location=f'cuda:{{0}}')
    torch.load(*[{f}])
    torch.load(**dict(f={f}))
    (lambda path, location='cuda': torch.load(path, map_location=location))({f})
""")


def saved_files(m: Maker) -> Lines:
    """Save tensors, and load them."""
    m.need("import io")
    f, x = m.fresh(), m.name("tensor")
    save = m.one_of(
        "saved",
        ("torch.ones(2).cuda()", "{'a': torch.ones(2).cuda()}", "torch.nn.Linear(2, 2).cuda().state_dict()"),
    )
    load = m.one_of(
        "load",
        LOAD,
    ).format(f=f)
    show = f"{x}" if not save.startswith(("{", "torch.nn")) else f"list({x}.values())[0]"
    if "nn.Linear" in save and m.chance(0.5):
        net = m.name("module")
        return [
            f"{f} = io.BytesIO()",
            f"torch.save({save}, {f})",
            f"{f}.seek(0)",
            f"{net} = torch.nn.Linear(2, 2).cuda()",
            f"{net}.load_state_dict({load})",
            f"print({net}.weight)",
        ]
    return [
        f"{f} = io.BytesIO()",
        f"torch.save({save}, {f})",
        f"{f}.seek(0)",
        f"{x} = {load}",
        f"print({show})",
    ]


PINNED_MEMORY = _blocks("""
    print(torch.ones(2).pin_memory().cuda())

    {x} = torch.ones(2).pin_memory()
    print({x})

    {x} = torch.empty(2, pin_memory=True).fill_(1)
    print({x}.cuda(non_blocking=True))

    for {x} in torch.utils.data.DataLoader(torch.ones(2, 2), pin_memory=True): print({x}.cuda())

    {x} = torch.ones(2)
    {x} = {x}.pin_memory() if torch.cuda.is_available() else {x}
    print({x})

    {x} = torch.ones(2)
    {y} = {x}.pin_memory()
    {y} += 1
    print({x}, {y})

    {x} = [t.pin_memory() for t in (torch.ones(2),)]
    print({x}[0].to('cuda', non_blocking=True))

    {x} = torch.zeros(2, device='cpu', pin_memory=True)
    print({x})

    print(torch.from_numpy(__import__('numpy').ones(2)).pin_memory().to('cuda'))
""")


def pinned_memory(m: Maker) -> Lines:
    """Pin memory."""
    x = m.name("tensor")
    form = m.one_of(
        "pinned memory",
        PINNED_MEMORY,
    )
    return form.format(x=x, y=m.name("tensor")).split("\n")


DATAPARALLEL = _blocks("""
    {n} = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())

    {n} = torch.nn.DataParallel(torch.nn.Linear(2, 2)).cuda()

    {n} = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[0])

    {n} = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[0, 1])

    {n} = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=range(torch.cuda.device_count())).cuda()

    {n} = torch.nn.Linear(2, 2).cuda()
    if torch.cuda.device_count() > 1: {n} = torch.nn.DataParallel({n})

    {n} = torch.nn.Linear(2, 2).cuda()
    {n} = torch.nn.DataParallel({n}, [0], output_device=0)

    {n} = torch.nn.DataParallel({n} := torch.nn.Linear(2, 2).to('cuda'))
""")


def data_parallel(m: Maker) -> Lines:
    """Use `DataParallel`."""
    net = m.name("module")
    form = m.one_of(
        "DataParallel",
        DATAPARALLEL,
    ).format(n=net)
    if ":=" in form and not m.at_top:
        form = f"{net} = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())"
    # With one GPU, what is only wrapped for several has no `module`, either.
    module = "getattr({n}, 'module', {n})" if "> 1" in form else "{n}.module"
    use = m.one_of(
        "use of DataParallel",
        ("print({n}(torch.ones(2, 2).cuda()))", f"print({module}.weight)", "print({n}(torch.ones(2, 2)))"),
    )
    return [*form.split("\n"), use.format(n=net)]


AUTOCAST = _blocks("""
    {x} = torch.cuda.amp.GradScaler()
    print({x}.state_dict()['scale'] > 0)

    {x} = 'cuda'
    with torch.autocast({x}, dtype=torch.bfloat16): print(torch.ones(1).cuda())

    with torch.autocast('cuda', torch.float16): print(torch.ones(1, device='cuda'))

    with torch.autocast('cuda'): {x} = torch.ones(2).cuda() * 2
    print({x})

    with torch.cuda.amp.autocast(): {x} = torch.ones(2).cuda() * 2
    print({x})

    with torch.autocast(device_type='cuda', enabled=False): {x} = torch.ones(2).cuda() * 2
    print({x})

    with torch.amp.autocast('cuda', enabled=True): print(torch.ones(1).cuda())

    {x} = torch.cuda.amp.GradScaler()
    print({x}.scale(torch.ones(1).cuda()) > 0)

    {x} = torch.amp.GradScaler('cuda', enabled=False)
    print({x}.scale(torch.ones(1).cuda()))

    @torch.autocast('cuda')
    def {f}(t): return t + 1
    print({f}(torch.ones(1).cuda()))

    @torch.cuda.amp.autocast()
    def {f}(t): return t + 1
    print({f}(torch.ones(1).cuda()))

    with torch.autocast('cuda', enabled=torch.cuda.is_available()): print(torch.ones(1).cuda())

    print(torch.is_autocast_enabled(), torch.ones(1).cuda())
""")


def autocast(m: Maker) -> Lines:
    """Use `autocast` or `GradScaler`."""
    x = m.name("tensor")
    form = m.one_of(
        "autocast",
        AUTOCAST,
    )
    return form.format(x=x, f=m.name("function")).split("\n")


TORCHSCRIPT = _blocks("""
    @torch.jit.script
    def {f}(x: torch.Tensor):
        return x.cuda() + 1
    print({f}(torch.ones(2)))

    @torch.jit.script
    def {f}(x: torch.Tensor):
        return x + torch.ones(2, device='cuda')
    print({f}(torch.ones(2).cuda()))

    def {f}(x: torch.Tensor):
        return x.to('cuda') * 2
    {f} = torch.jit.script({f})
    print({f}(torch.ones(2)))

    @torch.jit.ignore
    def {f}(x):
        return x.cuda()
    print({f}(torch.ones(2)))

    class {c}(torch.nn.Module):
        def forward(self, x):
            return x.cuda()
    print(torch.jit.script({c}())(torch.ones(2)))
""")


def script(m: Maker) -> Lines:
    """Move something in code that TorchScript compiles."""
    f = m.name("function")
    form = m.one_of(
        "TorchScript",
        TORCHSCRIPT,
    )
    return form.format(f=f, c=m.name("class")).split("\n")


MISLEADING_NAME = _blocks("""
    import enum
    class Kind(str, enum.Enum): GPU = 'cuda'
    print(torch.ones(1).to(Kind.GPU.value))

    import dataclasses
    @dataclasses.dataclass
    class Options:
        device: str = dataclasses.field(default='cuda')
        devices: list = dataclasses.field(default_factory=lambda: ['cuda'])
    print(torch.ones(1).to(Options().device), torch.ones(1).to(Options().devices[0]))

    @staticmethod
    def cuda(): return 'cuda'
    print(torch.ones(1).to(cuda()))

    class Wrapper:
        def __init__(self, inner): self.inner = inner
        def __getattr__(self, name): return getattr(self.inner, name)
    print(Wrapper(torch.ones(1)).cuda())

    class Tensor:
        def cuda(self): return 'moved'
    print(Tensor().cuda(), torch.ones(1).cuda())

    class Image:
        def to(self, form): return form * 2
    print(Image().to('cuda'[:2]), torch.ones(1).cuda())

    class Image:
        def to(self, device): return 'to ' + str(len(device))
    print(Image().to('abcd'), torch.ones(1).to('cuda'))

    def load(path, location='cuda'): return torch.ones(1).to(location)
    print(load('x'), load('x', 'cuda:0'), load('x', location='cuda'))

    def make(n, where=None): return torch.ones(n, device=where)
    print(make(1, 'cuda'), make(1), make(1, where='cuda'))

    def move(x, device=0): return x.to(device)
    print(move(torch.ones(1)))

    idx = torch.device('cuda:1').index if torch.device('cuda:1').type in ['cuda', 'xpu'] else None
    print(torch.ones(1).to(idx))

    device = 3
    print(device + 1, torch.ones(1).cuda())

    device = torch.float64
    print(torch.ones(1).to(device), torch.ones(1).cuda())

    gpu = torch.float64
    print(torch.ones(1).cuda().to(gpu))

    device = lambda: 'cuda'
    print(torch.ones(1).to(device()), torch.ones(1).cuda())

    device = ['cuda', 'cpu']
    print(torch.ones(1).to(device[0]), torch.ones(1).cuda())

    rank = 'abc'
    print(rank, torch.ones(1).cuda())

    stream = [1]
    stream.append(2)
    print(stream, torch.ones(1).cuda())

    cuda = 5
    print(cuda, torch.ones(1).cuda())

    device = {'name': 'cuda'}
    print(torch.ones(1).to(device['name']), torch.ones(1).cuda())

    device = torch.zeros(1)
    print(torch.ones(1).cuda().cpu().to(device))

    device = None
    print(device, torch.ones(1).cuda())

    use_cuda = 'yes'
    if use_cuda: print(torch.ones(1).cuda())

    use_cuda = 0
    if not use_cuda: print(torch.ones(1).cuda())

    device = torch.device('cpu')
    print(torch.ones(1).cuda(), torch.ones(1).to(device))

    device = 'cpu'
    print(torch.ones(1).cuda(), torch.zeros(1, device=device))

    import platform as device
    print(torch.ones(1).cuda())

    device = torch.device
    print(torch.ones(1).to(device('cuda')), torch.ones(1).cuda())

    print(torch.ones(1).cuda())
    device = torch.device('cuda')

    for device in range(2): print(torch.ones(1).cuda(device).sum())

    def device(): return torch.device('cuda')
    print(torch.ones(1).to(device()), torch.ones(1).cuda())

    class device:
        type = 'x'
    print(torch.ones(1).cuda(), device.type)

    model = {'w': torch.ones(1)}
    print({k: v.cuda() for k, v in model.items()})

    model = 'net'
    print(model, torch.ones(1).cuda())

    ports = {'nccl': 1, 'cuda': 2}
    print(ports['nccl'], torch.ones(1).cuda())

    names = ['cuda', 'other']
    print('cuda' in names, torch.ones(1).cuda())

    device = torch.device('cuda')
    device = 0
    print(torch.ones(1).cuda(device))

    device = 'cuda'
    print(torch.ones(1).cuda())
    device = 'cpu'
    print(torch.ones(1).to(device))

    is_available = torch.cuda.is_available
    print(torch.ones(1).cuda() if is_available() else torch.ones(1))

    torch.manual_seed(1)
    device = torch.randint(0, 2, (1,)).item()
    print(device, torch.ones(1).cuda())

    device = torch.device('cuda')
    del device
    print(torch.ones(1).cuda())

    if 1 > 2: device = torch.device('cuda')
    print(torch.ones(1).cuda())

    while False: device = 'cuda'
    print(torch.ones(1).cuda())

    try:
        device = torch.device('cuda')
        raise KeyError
    except KeyError as device:
        print(torch.ones(1).cuda())

    print((lambda device: torch.ones(1).cuda())(1))

    print([torch.ones(1).cuda() for device in range(1)])

    match {'device': 5}:
        case {'device': device}: print(device, torch.ones(1).cuda())

    with __import__('contextlib').nullcontext('cpu') as device: print(torch.ones(1).cuda())

    if (device := 'cpu'): print(torch.ones(1).cuda(), device)
""")


def misleading_names(m: Maker) -> Lines:
    """Give a value a name that says something else."""
    form = m.one_of(
        "misleading name",
        MISLEADING_NAME,
    )
    return form.split("\n")


LATE_BINDING = _blocks("""
    {f} = lambda: torch.ones(1).cuda()
    print({f}())
    {d} = torch.device('cuda')

    def {f}(): return torch.ones(1).cuda()
    print({f}())
    {d} = torch.device('cuda')
    print({f}())

    class K:
        x = torch.ones(1).cuda()
    print(K.x)
    {d} = torch.device('cuda')

    if True:
        def {f}(): return torch.ones(1).cuda()
        print({f}())
    {d} = torch.device('cuda')

    try:
        def {f}(): return torch.ones(1).cuda()
        print({f}())
    finally:
        {d} = torch.device('cuda')

    for _ in range(1):
        def {f}(): return torch.ones(1).cuda()
        print({f}())
        {d} = 'cuda'

    def {f}():
        def g(): return torch.ones(1).cuda()
        v = g()
        {d} = torch.device('cuda')
        return v.to({d})
    print({f}())

    {d} = torch.device('cuda')
    def {f}(): return torch.ones(1).cuda()
    print({f}())
    {d} = torch.device('cpu')
    print({f}())

    def {f}():
        print(torch.ones(1).cuda())
        {d} = 'cuda'
        return {d}
    {f}()

    def {f}():
        match [1]:
            case [x]: print(torch.ones(1).cuda())
        match {{'d': 'cuda'}}:
            case {{'d': {d}}}: print(torch.ones(1).to({d}))
    {f}()

    def {f}():
        import torch
        return torch.ones(1).cuda()
    print({f}())

    def {f}(x):
        x = x.cuda()
        import torch
        return torch.relu(x)
    print({f}(torch.ones(2)))

    def {f}(x=torch.ones(1).cuda()): return x
    print({f}())
    {d} = torch.device('cuda')

    @(lambda g: (g(), g)[1])
    def {f}(): print(torch.ones(1).cuda())
    {d} = torch.device('cuda')

    {f} = (torch.ones(1).cuda() for _ in range(1))
    {d} = 'cpu'
    print(next({f}))

    def {f}():
        global {d}
        {d} = torch.device('cuda')
        return torch.ones(1).cuda()
    print({f}())

    {d} = torch.device('cuda')
    def {f}():
        global {d}
        {d} = 'cpu'
    {f}()
    print(torch.ones(1).cuda())

    if __name__ == '__main__':
        {d} = torch.device('cuda')
    def {f}(): return torch.ones(1).cuda()
    print({f}())

    def {f}(): return torch.ones(1).cuda()
    if __name__ == '__main__':
        print({f}())
        {d} = 'cuda'

    class K:
        {d} = torch.device('cuda')
        def run(self): return torch.ones(1).cuda()
    print(K().run())

    class K:
        {d} = torch.device('cpu')
        x = torch.ones(1).cuda()
    print(K.x)

    import threading
    def {f}(): print(torch.ones(1).cuda())
    t = threading.Thread(target={f})
    t.start()
    t.join()
    {d} = 'cuda'

    exec('print(torch.ones(1).cuda().sum().item())') if torch.cuda.is_available() else print(1.0)
""")


def late_bindings(m: Maker) -> Lines:
    """Call a function before the module's device is bound, or bind it again."""
    f, d = m.name("function"), m.random.choice(("device", "device", m.name("device")))
    form = m.one_of(
        "late binding",
        LATE_BINDING,
    )
    if not m.at_top and "global" in form:
        form = "def {f}():\n    {d} = 'cpu'\n    return torch.ones(1).cuda()\nprint({f}())"
    return form.format(f=f, d=d).split("\n")


IMPORT_IN_A_PLACE = _blocks("""
    def {f}(x):
        import torch
        return x.cuda()
    print({f}(__import__('torch').ones(2)))

    def {f}():
        import torch as tt
        return tt.ones(2).cuda()
    print({f}())

    def {f}(x):
        y = x.cuda()
        import torch.nn as nn
        return nn.Identity()(y)
    print({f}(torch.ones(2)))

    def {f}():
        from torch import ones
        return ones(2).cuda()
    print({f}())

    def {f}():
        from torch import cuda
        cuda.synchronize()
    {f}()
    print(torch.ones(1).cuda())

    try:
        import torch
    except ImportError:
        torch = None
    print(torch.ones(1).cuda())

    from torch import cuda, device
    print(torch.ones(1).to(device('cuda')), torch.ones(1).cuda())
    cuda.synchronize()

    from torch import device as d
    print(torch.ones(1).to(d('cuda')))

    class K:
        import torch
        x = torch.ones(1).cuda()
    print(K.x)

    import importlib
    t = importlib.import_module('torch')
    print(t.ones(1).cuda())

    tt = __import__('torch')
    print(tt.ones(1).cuda())

    import sys
    tt = sys.modules['torch']
    print(tt.ones(1).cuda(), tt.zeros(1, device='cuda'))
""")


def imports(m: Maker) -> Lines:
    """Import torch in an odd place."""
    f = m.name("function")
    form = m.one_of(
        "import in a place",
        IMPORT_IN_A_PLACE,
    )
    return form.format(f=f).split("\n")


SETTING_OF_VISIBLE_GPUS = _blocks("""
    os.environ['CUDA_VISIBLE_DEVICES'] = {v}
    print(torch.ones(1).cuda())

    os.environ.setdefault('CUDA_VISIBLE_DEVICES', {v})
    print(torch.ones(1).cuda())

    def {f}(): return torch.ones(1).cuda()
    os.environ['CUDA_VISIBLE_DEVICES'] = {v}
    print({f}())

    def {f}():
        os.environ['CUDA_VISIBLE_DEVICES'] = {v}
        return torch.ones(1).cuda()
    print({f}())

    def {f}():
        print(torch.ones(1, device='cuda'))
    if __name__ == '__main__':
        os.environ['CUDA_VISIBLE_DEVICES'] = {v}
        {f}()

    os.environ.update(CUDA_VISIBLE_DEVICES={v})
    print(torch.zeros(1).to('cuda'))

    os.putenv('A', {v})
    os.environ['CUDA_VISIBLE_DEVICES'] = {v}
    x = torch.ones(1).to('cuda')
    print(x)

    class K:
        def __init__(self):
            os.environ['CUDA_VISIBLE_DEVICES'] = {v}
            self.x = torch.ones(1).cuda()
    print(K().x)

    import argparse
    a = argparse.Namespace(gpu={v})
    os.environ['CUDA_VISIBLE_DEVICES'] = a.gpu
    print(torch.ones(1).cuda(0))
""")


def visible_devices(m: Maker) -> Lines:
    """Set CUDA_VISIBLE_DEVICES, maybe late."""
    m.need("import os")
    value = m.one_of("visible GPUs", ("'0'", "'1'", "'0,1'", "str(1)"))
    form = m.one_of(
        "setting of visible GPUs",
        SETTING_OF_VISIBLE_GPUS,
    )
    return form.format(v=value, f=m.name("function")).split("\n")


CAUGHT_ERROR = _blocks("""
    try:
        torch.ones(1).cuda().no_such()
    except AttributeError as e:
        print('AttributeError')

    try:
        torch.ones(2).cuda() @ torch.ones(3).cuda()
    except RuntimeError:
        print('RuntimeError')

    try:
        [].cuda()
    except AttributeError:
        print('no attribute')

    try:
        None.cuda()
    except AttributeError:
        print('no attribute')

    try:
        torch.ones(1).to('no such')
    except RuntimeError:
        print('no device')

    try:
        {{}}['device'].to('cuda')
    except KeyError:
        print('no key')

    try:
        undefined.cuda()
    except NameError:
        print('no name')

    class K: pass
    try:
        K().cuda()
    except AttributeError:
        print('no attribute')

    class K:
        def to(self, d): return self
    try:
        K().cuda()
    except AttributeError:
        print('no attribute')

    x = None
    print(hasattr(x, 'cuda'), hasattr(torch.ones(1), 'cuda'))
""")


def exceptions(m: Maker) -> Lines:
    """Catch an error, and print its type."""
    form = m.one_of(
        "caught error",
        CAUGHT_ERROR,
    )
    return form.format().split("\n")


CONTAINER = _blocks("""
    {c} = [torch.ones(1), torch.zeros(2)]
    {c} = [t.cuda() for t in {c}]
    print({c})

    {c} = {{'a': torch.ones(1)}}
    for k in {c}: {c}[k] = {c}[k].cuda()
    print({c})

    {c} = {{'a': torch.ones(1)}}
    {c} = {{k: v.to('cuda') for k, v in {c}.items()}}
    print({c})

    {c} = [torch.ones(1)]
    {c}[0] = {c}[0].cuda()
    print({c})

    {c} = [torch.ones(1)]
    for i, t in enumerate({c}): {c}[i] = t.cuda()
    print({c})

    {c} = (torch.ones(1), 'name')
    {c} = tuple(t.cuda() if torch.is_tensor(t) else t for t in {c})
    print({c})

    {c} = [torch.ones(1), 'a', None]
    {c} = [t.cuda() if hasattr(t, 'cuda') else t for t in {c}]
    print({c})

    def {f}(o):
        if isinstance(o, list): return [{f}(i) for i in o]
        return o.cuda()
    print({f}([torch.ones(1), [torch.zeros(1)]]))

    {c} = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1), torch.ones(1, 1)])
    {c} = {c}.cuda()
    print({c}.data)

    {c} = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(1))]).cuda()
    print({c}[0])

    {c} = torch.nn.ModuleDict({{'a': torch.nn.Linear(1, 1)}})
    {c}['a'].cuda()
    print({c}['a'].bias)

    {c} = torch.ones(2).untyped_storage()
    print(len({c}.cuda()))

    {c} = list(torch.utils.data.TensorDataset(torch.ones(2, 1), torch.zeros(2)))
    for x, y in {c}: print(x.cuda() + y.cuda())

    {c} = torch.utils.data.DataLoader(torch.ones(2, 2))
    for x in {c}: print(x.cuda(non_blocking=True))

    {c} = set([0])
    for i in {c}: print(torch.ones(1).cuda(i))

    from collections import defaultdict
    {c} = defaultdict(torch.cuda.FloatTensor)
    print({c}['a'].numel())

    {c} = torch.sparse_coo_tensor([[0]], [1.0], (2,)).cuda()
    print({c}.to_dense())

    {c} = torch.nn.Parameter(torch.ones(2).cuda())
    print({c})

    {c} = torch.nn.Parameter(torch.ones(2))
    {c}.data = {c}.data.cuda()
    print({c})

    class T(torch.Tensor): pass
    {c} = torch.ones(2).as_subclass(T).cuda()
    print({c}.sum())
""")


def containers(m: Maker) -> Lines:
    """Move the tensors in a container."""
    c = m.name("own")
    form = m.one_of(
        "container",
        CONTAINER,
    )
    return form.format(c=c, f=m.name("function")).split("\n")


GRADIENT = _blocks("""
    {x} = torch.ones(2, requires_grad=True)
    ({x}.cuda() * 2).sum().backward()
    print({x}.grad)

    {x} = torch.ones(2).cuda().requires_grad_()
    ({x} * 2).sum().backward()
    print({x}.grad)

    {x} = torch.ones(2, device='cuda', requires_grad=True)
    ({x} ** 2).sum().backward()
    print({x}.grad)

    {x} = torch.ones(2, requires_grad=True)
    {y} = {x}.cuda() * 1
    ({y} * 3).sum().backward()
    print({x}.grad)

    {x} = torch.nn.Linear(2, 1).cuda()
    {x}(torch.ones(1, 2).cuda()).sum().backward()
    print({x}.weight.grad)

    {x} = torch.ones(2, requires_grad=True)
    {y} = {x}.cuda()
    {y}.retain_grad()
    ({y} * 3).sum().backward()
    print({y}.grad)

    {x} = torch.ones(2, requires_grad=True)
    {y} = torch.autograd.grad(({x}.to('cuda') * 3).sum(), {x})
    print({y}[0])

    {x} = torch.ones(2).cuda()
    {y} = torch.autograd.Variable({x}, requires_grad=True)
    ({y} * 2).sum().backward()
    print({y}.grad)
""")


def gradients(m: Maker) -> Lines:
    """Compute gradients across a move."""
    x, y = m.name("tensor"), m.name("tensor")
    form = m.one_of(
        "gradient",
        GRADIENT,
    )
    return form.format(x=x, y=y).split("\n")


DISTRIBUTED = _blocks("""
    import torch.distributed as dist
    {b} = torch.device('cuda', 0)
    dist.init_process_group('nccl', rank=0, world_size=1, store=dist.HashStore(), device_id={b})
    print(torch.ones(1).to({b}))
    dist.destroy_process_group()

    import torch.distributed as dist
    import os
    {b} = 'gloo' if os.name == 'nt' else 'nccl'
    dist.init_process_group(backend={b}, rank=0, world_size=1, store=dist.HashStore())
    print(torch.ones(1).cuda(dist.get_rank()))
    dist.destroy_process_group()

    {b} = 'nccl' if torch.cuda.is_available() else 'gloo'
    print(len({b}) == 4)

    {b} = dict(backend='nccl', rank=0)
    print({b}['rank'])

    {b} = {{'nccl': 1}}
    print(list({b}.values()))

    import torch.distributed as dist
    import os
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='0')
    dist.init_process_group('nccl', rank=0, world_size=1, store=dist.HashStore())
    {x} = torch.ones(1).cuda()
    dist.all_reduce({x})
    print({x})
    dist.destroy_process_group()

    import torch.distributed as dist
    dist.init_process_group(backend='nccl', rank=0, world_size=1, store=dist.HashStore())
    {x} = dist.get_rank()
    torch.cuda.set_device({x})
    print(torch.nn.Linear(1, 1).to({x})(torch.ones(1).cuda({x})))
    dist.destroy_process_group()

    import torch.distributed as dist
    {b} = 'nccl'
    dist.init_process_group({b}, rank=0, world_size=1, store=dist.HashStore())
    {x} = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1).cuda(), device_ids=[0])
    print({x}(torch.ones(1).cuda()))
    dist.destroy_process_group()
""")


def distributed(m: Maker) -> Lines:
    """Use the words of distributed training, with one process."""
    b = m.name("other")
    form = m.one_of(
        "distributed",
        DISTRIBUTED,
    )
    return form.format(b=b, x=m.name("tensor")).split("\n")


IN_CIRCLES = _blocks("""
    import second
    {d} = {v}

    from second import *
    {d} = {v}

    import second; second.call()
    {d} = {v}

    {d} = {v}
    import second
    second.call()

    if True:
        import second
        {d} = {v}

    def late():
        import second
        second.call()
    late()
    {d} = {v}
""")


def circle_of_imports(m: Maker) -> Lines:
    """Move in a function that another module calls while the function's module is imported."""
    f = m.name("function")
    first, second = (f"circle{len(m.files) + more}" for more in range(2))
    move = m.one_of("move in a circle", ("x.cuda()", "x.to('cuda:1')", "torch.zeros(2).cuda()"))
    value = m.one_of("device in a circle", ("torch.device('cuda')", "'cuda'", "torch.device('cuda:1')"))
    rest = m.one_of("circle", IN_CIRCLES).replace("second", second).format(d=m.name("device"), v=value)
    m.files[first] = f"import torch\ndef {f}(x): return {move}\n{rest}\n"
    m.files[second] = f"import torch\nimport {first}\ndef call(): return {first}.{f}(torch.ones(2))\ncall()\n"
    return [f"import {first}", f"print({first}.{f}(torch.ones(1)))"]


SET_ELSEWHERE = _blocks("""
    import {module}
    {module}.{name} = {value}

    import {module} as settings
    settings.{name} = {value}

    import {module}
    setattr({module}, '{name}', {value})
""")


def name_set_elsewhere(m: Maker) -> Lines:
    """Set a name of another module, whose functions move a tensor."""
    name, f = m.name("flag"), m.name("function")
    module = f"settings{len(m.files)}"
    code, value = m.random.choice(
        (
            (f"{name} = torch.device('cuda')\ndef {f}(x): return x.cuda()", "torch.device('cpu')"),
            (f"{name} = 'cuda'\ndef {f}(x): return x.cuda(), x.to({name})", "'cpu'"),
            (
                f"{name} = torch.cuda.is_available()\ndef {f}(x): return x.cuda() if {name} else x",
                "False",
            ),
            (
                f"{name} = torch.cuda.is_available()\nwhere = torch.device('cuda' if {name} else 'cpu')\n"
                f"def {f}(x):\n    if {name}:\n        x = x.cuda()\n    return x",
                "False",
            ),
        )
    )
    m.files[module] = f"import torch\n{code}\n"
    form = m.one_of("set elsewhere", SET_ELSEWHERE).format(module=module, name=name, value=value)
    return [*form.split("\n"), f"from {module} import {f}", f"print({f}(torch.ones(1)))"]


BOUND_AGAIN = _blocks("""
    {u} = torch.cuda.is_available()
    {d} = torch.device('cuda' if {u} else 'cpu')
    {u} = False
    {x} = torch.ones(2)
    if {u}: {x} = {x}.cuda()
    print({x}, {d})

    {u} = False
    {d} = torch.device('cuda' if {u} else 'cpu')
    {u} = torch.cuda.is_available()
    {x} = torch.ones(2)
    {x} = {x}.cuda() if {u} else {x}
    print({x}, {d})

    {u} = types.SimpleNamespace(cuda=torch.cuda.is_available())
    {d} = torch.device('cuda' if {u}.cuda else 'cpu')
    {x} = {u}
    {x}.cuda = False
    print(torch.ones(1).cuda() if {u}.cuda else torch.ones(1), {d})
""")


def flag_bound_again(m: Maker) -> Lines:
    """Choose a device by a flag that changes afterwards."""
    m.need("import types")
    form = m.one_of("flag bound again", BOUND_AGAIN)
    return form.format(u=m.name("flag"), d=m.name("device"), x=m.name("tensor")).split("\n")


SITUATIONS: dict[str, Situation] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and not name.startswith("_") and name not in ("use_of_device", "Callable", "Situation")
}
