"""Rules that other distributions bring."""

from __future__ import annotations

import json
import operator
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from devicefix.config.settings import RuleOptions
from devicefix.devices.context import Context
from devicefix.facts import Facts
from devicefix.facts.project import Project

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
FAST = "import torch\n\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
RULE = """
import ast
from devicefix.plugins import Rule

class {name}(Rule):
    \"\"\"
    ## What it does
    Finds `torch.mps`.
    \"\"\"
    code = "{code}"
    name = "{word}"
    summary = "Something of MPS"
    words = (b"mps",)

    def visit_Attribute(self, node):
        if self.facts.resolve(node) == "torch.mps":
            yield self.finding(node, "MPS")
"""

Install = Callable[..., None]


def devicefix(site: Path, *arguments: str, data: str = "") -> subprocess.CompletedProcess[str]:
    """Run devicefix where what lies in a folder is installed."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "devicefix", *arguments],
        input=data, env=environment, cwd=site, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Install a distribution into `tmp_path`: its name, and what its one module holds."""

    def install(name: str, code: str, version: str = "1.0", point: str = "") -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code), encoding="utf-8")
        folder = tmp_path / f"{module}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text(f"[devicefix.rules]\nx = {point or module}\n")

    return install


def rule(code: str = "XY101", word: str = "mps", name: str = "Mps") -> str:
    return RULE.format(code=code, word=word, name=name)


def ordered(code: str, before: str, name: str = "Ordered") -> str:
    """Return the code of a rule that reports `.cuda()` and hides it from the rules behind it."""
    return f'''
from devicefix.plugins import Rule

class {name}(Rule):
    code, name, summary = "{code}", "{name.lower()}", "A rule with an order"
    before = ("{before}",)
    words = (b"cuda",)

    def visit_Call(self, node):
        if getattr(node.func, "attr", "") == "cuda":
            self.context.mark_handled(node)
            yield self.finding(node, "ordered")
'''


@pytest.mark.parametrize("code", ["AA101", "ZZ101"])
def test_the_order_is_declared_and_not_by_letters(tmp_path: Path, install: Install, code: str) -> None:
    install("some-plugin", ordered(code, "DF101"))
    arguments = ("check", "-", "-q", "--no-cache", "--output-format=concise")
    text = "import torch\n\nx = torch.ones(2).cuda()\n"
    assert devicefix(tmp_path, *arguments, data=text).stdout.split()[1] == code
    (tmp_path / "some_plugin.py").write_text(
        ordered(code, "XX999")
    )  # a rule of a plugin that is not installed
    found = devicefix(tmp_path, *arguments, data=text).stdout.splitlines()
    assert [line.split()[1] for line in found] == ["DF101", code]


def test_takes_part_as_ours_do(tmp_path: Path, install: Install) -> None:
    install("some-plugin", rule())
    text = "import torch\n\nif x:\n    torch.mps.seed()\ntorch.ones(2).cuda()\n"

    def codes(*options: str, text: str = text) -> list[str]:
        done = devicefix(
            tmp_path, "check", "-", "-q", "--no-cache", "--output-format=concise", *options, data=text
        )
        assert not done.stderr
        return [line.split()[1] for line in done.stdout.splitlines()]

    assert codes() == ["XY101", "DF101"]
    assert codes("--select", "XY") == ["XY101"]
    assert codes("--ignore", "XY101") == ["DF101"]
    assert codes("--target", "accelerator", "--select", "XY1") == ["XY101"]
    assert codes(text=text.replace("seed()", "seed()  # noqa: XY101")) == ["DF101"]
    assert codes(text="import torch\ntorch.mps.seed()\n") == ["XY101"]  # no word of ours: past the gate
    listed = devicefix(tmp_path, "rule").stdout.splitlines()
    assert listed[-1].split() == ["XY101", "mps", "Something", "of", "MPS", "[some-plugin", "1.0]"]
    assert devicefix(tmp_path, "rule", "mps").stdout.startswith("# mps (XY101)\n\n## What it does\n")


def test_an_entry_point_may_name_a_class(tmp_path: Path, install: Install) -> None:
    install("some-plugin", rule() + rule("XY102", "more", "More"), point="some_plugin:More")
    assert [line[:5] for line in devicefix(tmp_path, "rule").stdout.splitlines() if "XY" in line] == ["XY102"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import missing_module", "ModuleNotFoundError: No module named 'missing_module'"),
        ("raise SystemExit('no\\nway')", "SystemExit: no way"),
        ("def f(:", "SyntaxError: "),
        ("", "contains no rule"),
        (rule("DF101"), "the code 'DF101' starts with DF"),
        (rule("xy1"), "the code 'xy1' is not capital letters followed by digits"),
        (rule("XY101", "cuda-call"), "contains a rule 'cuda-call', which devicefix itself contains as well"),
        (rule("XY101", "Mps"), "not in kebab-case"),
        (rule() + rule("XY101", "more", "More"), "contains two rules with the code 'XY101'"),
        (rule().replace("(b\"mps\",)", "(b\"mps\")"), "`words` of XY101 is not a tuple of bytes"),
        (ordered("XY101", "DF101").replace("1\",)", "1\")"), "`before` of XY101 is not a tuple of str"),
        (ordered("XY101", "DF998"), "puts XY101 before DF998, which does not exist"),
        (ordered("XY101", "XY101"), "orders rules in a cycle: XY101 before XY101"),
        (ordered("XY101", "XY102") + ordered("XY102", "XY101", "Other"), "in a cycle: XY101 before XY102"),
        (rule().replace("words", "references = 'a',; words"), "both `references` and `visit_reference`"),
        (rule().replace("visit_Attribute", "visit_Atribute"), "a class that is not in `ast`"),
    ],
)  # fmt: skip
def test_bad_plugins_are_named_in_one_line(tmp_path: Path, install: Install, code: str, said: str) -> None:
    install("some-plugin", code)
    done = devicefix(tmp_path, "check", "-", data=FAST)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: the plugin some-plugin 1.0 ") and said in line
    assert line.endswith("(update it, or uninstall it: pip uninstall some-plugin)")


def test_the_rule_in_the_documentation_is_sound(tmp_path: Path, install: Install) -> None:
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class OurDevice" in block
    )
    install("our-rules", code)
    test = (
        "from devicefix.testing import *; from our_rules import *; [e.check() for e in examples(OurDevice)]"
    )
    done = subprocess.run([sys.executable, "-c", test], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_documentation_offers_exists() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    facts = Facts.read(b"import torch\n")
    context = Context(facts.source, facts, Project(), "module.py", RuleOptions())
    offered = {"facts": facts, "context": context, "devices": context.devices}
    found = re.findall(r"self\.(facts|context|devices)((?:\.\w+)+)", page)
    assert {owner for owner, _ in found} == set(offered)
    for owner, path in found:
        operator.attrgetter(path[1:])(offered[owner])


@pytest.mark.needs("jinja2")
def test_every_format_knows_them(tmp_path: Path, install: Install) -> None:
    install("some-plugin", rule())
    text = "import torch\ntorch.mps.seed()\n"
    for name in (
        "full",
        "concise",
        "grouped",
        "json",
        "json-lines",
        "sarif",
        "github",
        "gitlab",
        "junit",
        "html",
    ):
        done = devicefix(tmp_path, "check", "-", "-q", "--no-cache", f"--output-format={name}", data=text)
        assert done.returncode == 1 and not done.stderr
        assert "XY101" in done.stdout


def test_two_plugins_with_the_same_code(tmp_path: Path, install: Install) -> None:
    install("one", rule())
    install("two", rule(word="other"))
    done = devicefix(tmp_path, "rule")
    assert done.returncode == 2
    assert (
        "the plugin two 1.0 contains a rule 'XY101', which the plugin one 1.0 contains as well" in done.stderr
    )


def test_a_rule_that_fails_is_the_plugins_affair(tmp_path: Path, install: Install) -> None:
    install("some-plugin", rule().replace("if self", "1 / 0\n        if self"))
    done = devicefix(tmp_path, "check", "-", data=FAST)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert (
        "error in the plugin some-plugin 1.0; please report it to its author: ZeroDivisionError"
        in done.stderr
    )


def test_what_a_cache_knows_is_of_one_version(tmp_path: Path, install: Install) -> None:
    (tmp_path / "tied.py").write_text("import torch\ntorch.mps.seed()\n")

    def check() -> str:
        arguments = ("check", "tied.py", "-q", "--cache-dir", "cache", "--output-format=concise")
        return devicefix(tmp_path, *arguments).stdout

    def dist_info(version: str) -> Path:
        return tmp_path / f"some_plugin-{version}.dist-info"

    assert check() == ""
    install("some-plugin", rule())
    assert check() == "tied.py:2:1: XY101 MPS\n"
    module = tmp_path / "some_plugin.py"
    before = module.stat()
    module.write_text(module.read_text().replace('"MPS"', '"New"'))
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    metadata = dist_info("1.0") / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "1.1"))
    assert check() == "tied.py:2:1: XY101 New\n"
    module.write_text(module.read_text().replace('"New"', '"Newer"'))  # while it is being written
    assert check() == "tied.py:2:1: XY101 Newer\n"


def test_without_plugins_nothing_is_imported_for_them() -> None:
    code = "import sys, devicefix.rules; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_the_example_is_built_installed_and_used(tmp_path: Path) -> None:
    """Run the steps of docs/plugins.md in a new virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    example = shutil.copytree(EXAMPLE, tmp_path / "plugin", ignore=shutil.ignore_patterns("__pycache__"))
    wanted = [str(ROOT), str(example), "pytest"]
    subprocess.run([str(programs / "python"), "-m", "pip", "install", "-q", *wanted], check=True)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program, *rest = arguments
        return subprocess.run(
            [str(programs / program), *rest], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    done = run("pytest", "-q", str(example))
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout
    (tmp_path / "fast.py").write_text(FAST)
    found = json.loads(run("devicefix", "check", "fast.py", "--output-format=json").stdout)
    assert [each["code"] for each in found] == ["EX101"]
    assert run("devicefix", "rewrite", "--in-place", "--unsafe-fixes", "fast.py").returncode == 0
    assert (tmp_path / "fast.py").read_text().endswith('\ntorch.set_float32_matmul_precision("high")\n')
