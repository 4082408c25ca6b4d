"""Random programs that are tied to CUDA: the rules' own examples, nested, mixed and formatted at random.

Everything is drawn from a `random.Random`, so that hypothesis can shrink a program (`strategies.randoms`) and
a fuzzer can make one from a seed.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

from devicefix.rules.registry import RULES

TIES = re.compile(r"cuda|device|gpu|nccl|load|pin_memory|get_rank|nvtx|apex|cupy|SyncBatch")

EXPRESSIONS = (
    "{}",
    "f({})",
    "f(a, {}, key={})",
    "({})",
    "[{}, {}]",
    "({}, {})",
    "{{'a': {}, **{}}}",
    "{}.shape",
    "{}[0]",
    "{}.float().cuda()",
    "[{} for v in w if {}]",
    "{{k: {} for k, v in w.items()}}",
    "(lambda v={}: {})",
    "lambda: {}",
    "f'{{{}}}'",
    'f"a {{{}!r:>{{w}}}} b"',
    "{} if c else {}",
    "{} if torch.cuda.is_available() else {}",
    "not {}",
    "{} + {}",
    "-{}",
    "{} and {}",
    "{} == {}",
    "(n := {})",
    "*{}",
    "f(*{}, **{})",
    "a[{}:{}]",
    "(\n    {}\n)",
    "f(\n    {},  # why\n    {},\n)",
    "Variable({})",
    "{}.to('cuda')",
    "nn.DataParallel({})",
    "torch.cuda.FloatTensor({})",
    "torch.load({})",
    "(yield {})",
    "(await {})",
    "'a' 'b' + {}",
    "map({}, {})",
)
SIMPLE = (
    "{}",
    "x = {}",
    "x, y = {}, {}",
    "self.x = {}",
    "x: int = {}",
    "x += {}",
    "return {}",
    "assert {}, 'why'",
    "del {}",
    "raise {}",
    "x = y = {}",
    "print('é', {})",
    "x['a'] = {}",
    "yield {}",
    "global x",
    "pass",
    "x = '''a\n  b'''; {}",
    "x = {}; y = {}",
    "x = {};",
    "import os",
    "from torch.cuda import synchronize",
    "device = {}",
    "use_cuda = {}",
    "args.device = {}",
    "device = 'cuda'",
    "x = x.cuda()",
    "net.cuda()",
    "torch.cuda.synchronize()",
    "torch.cuda.manual_seed_all(1)",
    "torch.cuda.set_device(gpu)",
    "os.environ['CUDA_VISIBLE_DEVICES'] = '1'",
    "args = parser.parse_args()",
    "parser.add_argument('--device', default='cuda')",
    "args.cuda = not args.no_cuda",
)
COMPOUND = (
    "if {e}:\n{b}",
    "if {e}:\n{b}\nelse:\n{b}",
    "if {e}:\n{b}\nelif {e}:\n{b}\nelse:\n{b}",
    "for v in {e}:\n{b}",
    "while {e}:\n{b}\nelse:\n{b}",
    "try:\n{b}\nexcept {e}:\n{b}",
    "try:\n{b}\nfinally:\n{b}",
    "with {e} as c:\n{b}",
    "with {e}, {e}:\n{b}",
    "def f(x, device=None):\n{b}",
    "def f(x=({e}), *a, **k):\n{b}",
    "class Net(nn.Module):\n{b}",
    "class Net(nn.Module):\n    def forward(self, x):\n{bb}",
    "@wrap({e})\ndef f(x):\n{b}",
    "async def f(x):\n{b}",
    "if torch.cuda.is_available():\n{b}",
    "if use_cuda:\n{b}\nelse:\n{b}",
    "if not torch.cuda.is_available():\n{b}\nelse:\n{b}",
    "if args.cuda:\n{b}",
    "if __name__ == '__main__':\n{b}",
    "def main():\n{b}",
    "match {e}:\n    case 1:\n{bb}",
    "def f():\n    '''Says.'''\n{b}",
    "with torch.no_grad():\n{b}",
    "if x.is_cuda:\n{b}",
    "if c:\n{b}\n# between\nelif use_cuda:\n{b}",
    "for i in range({e}):\n    pass\n{s}",
    "try:\n{b}\nexcept: pass",
)
BEGINNINGS = (
    "",
    "# a licence\n",
    "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n",
    '"""Says what."""\n',
    "from __future__ import annotations\n",
    "'''Says'''; import sys\n",
    "\n\n",
    "\f\n",
    "\ufeff",
)
IMPORTS = (
    "import torch",
    "import torch as th",
    "import torch.nn as nn",
    "from torch import nn, cuda",
    "import torch.cuda",
    "from utils import *",
    "import torch; import os",
    "try:\n    import torch\nexcept ImportError:\n    torch = None",
    "from torch.autograd import Variable",
    "from torch import (\n    nn,\n    load,\n)",
    "import torch, os",
    "from torch import device",
    "import torch \\\n    as torch",
    "import sys\nsys.path.insert(0, '.')",
)
# What changes the form of a program and, mostly, not what it says: a pattern, and what takes its place.
FORMS = (
    (r"(?m)$", "  # é: cuda()"),
    (r"\n", "\n   \n"),
    (r"\n", "\n# a remark\n"),
    (r"\n", "\n\f\n"),
    (r"\n", "\n\t# \n"),
    (r"\(", "(\n        "),
    (r"\(", "(  # why (\n"),
    (r",", ",\n\n"),
    (r",", " ,"),
    (r" = ", " = \\\n      "),
    (r"\.", " \\\n    ."),
    (r"\.", " . "),
    (r"\)", "\n)"),
    (r"\)", ",)"),
    (r"\n *(?=\w)", "; "),
    (r":\n +", ": "),
    (r" = (.+)", r" = (\1)"),
    (r" = (.+)", r" = (\n  \1\n  # end\n)"),
    (r"'", '"'),
    (r'"', "'"),
    (r"'", "'''"),
    (r"\bx\b", "ñandú"),
    (r"\b(a|n|key)\b", "device"),
    (r"\btorch\b", "th"),
    (r"'", "r'"),
    (r"'", "b'"),
    (r"cuda'", "cuda:0'"),
    (r"\(\)", "(1)"),
    (r"\(\)", "(device, non_blocking=True)"),
    (r"\n", ";\n"),
    (r" ", "  "),
    (r"\n+\Z", ""),
    (r"\n+\Z", "\n    \\\n"),
    (r"(?m)^(    )+", lambda match: "\t" * (len(match.group()) // 4)),
    (r"(?m)^if (.+):$", r"if (\1\n):"),
    (r"(?m)^( *)if ", r"\1if not "),
    (r"is_available\(\)", "device_count() > 0"),
)
EVERYWHERE = (r"(?m)^(    )+", r"\bx\b", r"'")  # half of the time


class Fragments(NamedTuple):
    """The parts of the rules' examples."""

    imports: tuple[str, ...]
    statements: tuple[str, ...]
    expressions: tuple[str, ...]


def parses(text: str) -> bool:
    """Return whether a text is a module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


@lru_cache
def fragments() -> Fragments:
    """Return the imports, statements and expressions of all rules' examples."""
    examples = [example.before for rule in RULES.values() for example in rule.INVALID]
    examples += [example.before for rule in RULES.values() for example in rule.VALID]
    return fragments_of(examples)


def fragments_of(texts: list[str], longest: int = 400) -> Fragments:
    """Return the imports, statements and expressions of programs that matter and are short."""
    imports, statements, expressions = dict[str, None](), dict[str, None](), dict[str, None]()
    for text in texts:
        for node, code in _pieces(text):
            kept = imports if isinstance(node, (ast.Import, ast.ImportFrom)) else statements
            kept = expressions if isinstance(node, ast.expr) else kept
            if len(code) <= longest and TIES.search(code) and code not in kept and parses(code):
                kept[code] = None
    return Fragments(tuple(imports), tuple(statements), tuple(expressions))


def _pieces(text: str) -> Iterator[tuple[ast.AST, str]]:
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n|\Z)", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return
    for node in ast.walk(module):
        if isinstance(node, ast.stmt):
            first = min(
                [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]
            )
            yield node, textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip("\n")
        elif isinstance(node, ast.expr) and node.end_lineno == node.lineno:
            line = lines[node.lineno - 1].encode()
            yield node, line[node.col_offset : node.end_col_offset].decode(errors="ignore")


def program(random: Random, pieces: Fragments | None = None, size: int = 4) -> bytes:
    """Return a program that parses.

    Args:
        random: where every choice comes from.
        pieces: what to make it of, by default what the rules' examples hold.
        size: how many statements it has at most in a block.
    """
    maker = _Maker(random, pieces or fragments(), size)
    imports = [maker.one_of(IMPORTS, maker.pieces.imports) for _ in range(random.randint(0, 3))]
    if random.random() < 0.8:
        imports.insert(random.randint(0, len(imports)), "import torch")
    body = maker.block(depth=random.randint(0, 3))
    text = random.choice(BEGINNINGS) + "\n".join([*imports, body, ""])
    if not parses(text):
        text = "import torch\n" + maker.simple(0) + "\nx.cuda()\n"
    text = commented(random, formed(random, text))
    newline = random.choice(["\n", "\n", "\n", "\r\n", "\r"])
    return text.replace("\n", newline).encode() if parses(text) else b"import torch\n\nx.cuda()\n"


def formed(random: Random, text: str) -> str:
    """Return a program in another form."""
    for _ in range(random.randint(0, 6)):
        pattern, new = random.choice(FORMS)
        places = list(re.finditer(pattern, text))
        if not places:
            continue
        if pattern in EVERYWHERE and random.random() < 0.5:
            other = re.sub(pattern, new, text)
        else:
            place = random.choice(places)
            made = place.expand(new) if isinstance(new, str) else new(place)
            other = text[: place.start()] + made + text[place.end() :]
        if parses(other):
            text = other
    return text


def commented(random: Random, text: str) -> str:
    """Return a program with some comments, each with its own number."""
    lines = text.split("\n")
    for number in range(random.randint(0, 4)):
        index = random.randrange(len(lines))
        line, comment = lines[index], f"# comment {number}"
        indent = line[: len(line) - len(line.lstrip())]
        other = f"{line}  {comment}" if random.random() < 0.5 else f"{indent}{comment}\n{line}"
        if parses("\n".join([*lines[:index], other, *lines[index + 1 :]])):
            lines[index] = other
    return "\n".join(lines)


class _Maker:
    """Makes the parts of one program."""

    def __init__(self, random: Random, pieces: Fragments, size: int) -> None:
        self.random = random
        self.pieces = pieces
        self.size = size

    def one_of(self, *choices: tuple[str, ...]) -> str:
        return self.random.choice(self.random.choice([each for each in choices if each]))

    def block(self, depth: int) -> str:
        count = self.random.randint(1, self.size)
        return "\n".join(self.sound(self.statement(depth)) for _ in range(count))

    def sound(self, text: str) -> str:
        return text if parses(text) else "x = x.cuda()"

    def statement(self, depth: int) -> str:
        kind = self.random.randrange(4)
        if kind == 0 and self.pieces.statements:
            return self.random.choice(self.pieces.statements)
        if kind == 1 or depth < 1:
            return self.simple(depth)
        return self.compound(depth)

    def simple(self, depth: int) -> str:
        return self.filled(self.random.choice(SIMPLE), depth)

    def compound(self, depth: int) -> str:
        def part(match: re.Match[str]) -> str:
            kind = match[1]
            if kind == "e":
                return self.expression(1)
            if kind == "s":
                return self.block(depth - 1)
            return textwrap.indent(self.block(depth - 1), "    " * len(kind))

        return re.sub(r"\{(e|s|b+)\}", part, self.random.choice(COMPOUND))

    def expression(self, depth: int) -> str:
        if depth < 1 or self.random.random() < 0.3:
            return self.random.choice(self.pieces.expressions or ("x.cuda()",))
        return self.filled(self.random.choice(EXPRESSIONS), depth - 1)

    def filled(self, template: str, depth: int) -> str:
        text = re.sub(r"(?<!\{)\{\}|(?<=\{\{)\{\}(?=\}\})", lambda _: self.expression(depth), template)
        return text.replace("{{", "{").replace("}}", "}") if "{{" in template else text
