"""devicefix on a code base that has findings already: `noqa` comments, baselines, what is ignored where."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import Cli

from devicefix.config.globs import off
from devicefix.config.load import combined
from devicefix.config.settings import Settings
from devicefix.engine.file import check_file
from devicefix.facts import comments as noqa
from devicefix.facts.project import Project
from devicefix.files.text import parse
from devicefix.rules.base import Rule
from devicefix.rules.registry import RULES

TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
BASELINE = ("--baseline", "known.json")


def ruff(*arguments: str, folder: Path) -> str:
    command = ["ruff", "check", "--no-cache", "--output-format", "concise", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


# -- --add-noqa ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.cuda()", "x.cuda()  # noqa: DF101"),
        ("x.cuda()  \t", "x.cuda()  # noqa: DF101"),
        ("x.cuda()  # why", "x.cuda()  # why  # noqa: DF101"),
        ("x.cuda()  # noqa: F401", "x.cuda()  # noqa: DF101, F401"),
        ("x.cuda()  #noqa:W291,E501 since", "x.cuda()  # noqa: DF101, E501, W291 since"),
        ("x.cuda()  # noqa: DF102  # type: ignore", "x.cuda()  # noqa: DF101, DF102  # type: ignore"),
        ("x.cuda()  # why # noqa: E501", "x.cuda()  # why # noqa: DF101, E501"),
        ("x.cuda()  # noqa: no code", "x.cuda()  # noqa: no code  # noqa: DF101"),
        ("f(x.cuda(), '# noqa: E501')", "f(x.cuda(), '# noqa: E501')  # noqa: DF101"),
        ("x.cuda() + \\\n    y", "x.cuda() + \\\n    y  # noqa: DF101"),
        ("x.cuda(\n    non_blocking=True)", "x.cuda(  # noqa: DF101\n    non_blocking=True)"),
        ('f(x.cuda(), """\n""")', 'f(x.cuda(), """\n""")  # noqa: DF101'),
        ('f(x.cuda(), f"""{a}\n""" + \\\n  b)', 'f(x.cuda(), f"""{a}\n""" + \\\n  b)  # noqa: DF101'),
        ("x.cuda(); y.to('cuda')", "x.cuda(); y.to('cuda')  # noqa: DF101, DF102"),
        ("if x.cuda(): pass\nelse: pass", "if x.cuda(): pass  # noqa: DF101\nelse: pass"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", [True, False])
def test_add_noqa(cli: Cli, tmp_path: Path, before: str, after: str, newline: str, end: bool) -> None:
    def data(text: str) -> bytes:
        text = f"# coding: latin-1\nimport torch  # \xe9\n{text}" + "\n" * end
        return text.replace("\n", newline).encode("latin-1")

    file = tmp_path / "tied.py"
    file.write_bytes(data(before))
    done = cli("check", "--add-noqa")
    assert (done.exit_code, done.output) == (0, "Added 1 noqa directive.\n")
    assert file.read_bytes() == data(after)
    assert cli("check").exit_code == 0
    assert cli("check", "--add-noqa").output == "Added 0 noqa directives.\n"
    assert file.read_bytes() == data(after)


@pytest.mark.parametrize(
    "rule",
    [rule for code, rule in RULES.items() if code != "DF001" and rule.INVALID and not rule.needs_run],
    ids=lambda r: r.code,
)
def test_add_noqa_suppresses_every_finding_and_changes_no_code(rule: type[Rule]) -> None:
    for example in rule.INVALID:
        data = example.before.encode()
        settings = Settings(select=("DF",), ignore=("DF001",), target=rule.targets[0])
        findings = check_file(data, "module.py", settings, Project()).findings
        assert findings, example.name
        added = noqa.add(data, findings)
        assert added.left == []
        assert check_file(added.data, "module.py", settings, Project()).findings == []
        assert ast.dump(parse(added.data.decode())) == ast.dump(parse(data.decode()))
        after = check_file(added.data, "module.py", Settings(select=("DF001",)), Project()).findings
        assert [each for each in after if "is not reported here" in each.message] == []


def test_findings_that_no_comment_can_suppress_are_errors(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text('import torch\nprint "x", x.cuda()\n')
    (tmp_path / "run.sh").write_text("python train.py --device cuda\n")
    done = cli("check", "--add-noqa", "--config-files")
    assert (done.exit_code, done.stdout) == (1, "Added 0 noqa directives.\n")
    hint = "here; use a baseline or per-file-ignores"
    assert f"broken.py:2:1: error: no comment can suppress DF901 {hint}\n" in done.stderr
    assert f"run.sh:1:17: error: no comment can suppress DF905 {hint}\n" in done.stderr
    assert (tmp_path / "run.sh").read_text() == "python train.py --device cuda\n"


def test_add_noqa_refuses_to_change_code(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'import torch\nf(x.cuda(), """\n""")\n'
    findings = check_file(data, "module.py", Settings(), Project()).findings
    monkeypatch.setattr(noqa, "comment_line", lambda _source, _module, line: line)  # inside the string
    assert noqa.add(data, findings) == (data, 0, findings)


@pytest.mark.needs("ruff")
def test_our_codes_and_ruffs_share_a_comment(tmp_path: Path, cli: Cli) -> None:
    """Check that `external`, as documented, keeps ruff from reporting our codes."""
    (tmp_path / "tied.py").write_text("import os  # noqa: F401\nx.cuda()  # noqa: F821\n")
    assert "Added 1 noqa" in cli("check", "--add-noqa").stdout
    assert (tmp_path / "tied.py").read_text().endswith("x.cuda()  # noqa: DF101, F821\n")
    options = ("--isolated", "--select", "F,RUF")
    assert "`# noqa`: DF101" in ruff(*options, folder=tmp_path)
    assert ruff(*options, "--config", 'lint.external = ["DF"]', folder=tmp_path) == "All checks passed!\n"


def test_add_noqa_refuses_the_standard_input(cli: Cli) -> None:
    assert cli("check", "--add-noqa", "-").exit_code == 2
    assert cli("check", "--add-noqa", "--write-baseline").exit_code == 2


# -- unused noqa ---------------------------------------------------------------------------------------


def test_unused_comments_are_reported_and_removed_if_selected(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "free.py"  # in which only the comment concerns devicefix
    file.write_text("x = 1  # noqa: DF101, F401\ny = 2  # noqa: DF1O1\nz = 3  # noqa: DF919\n")
    assert cli("check").exit_code == 0
    shown = cli("check", "--extend-select", "DF001").stdout
    assert "unused `noqa`: DF101 is not reported here" in shown
    assert "unused `noqa`: no rule has the code 'DF919'; did you mean 'DF9" in shown
    assert cli("rewrite", "--in-place", "--extend-select", "DF001").exit_code == 0
    assert file.read_text() == "x = 1  # noqa: F401\ny = 2  # noqa: DF1O1\nz = 3\n"


def test_an_unused_comment_cannot_be_suppressed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text("x = 1  # noqa: DF101\n")
    done = cli("check", "--add-noqa", "--extend-select", "DF001")
    assert (done.exit_code, done.stdout) == (1, "Added 0 noqa directives.\n")
    assert done.stderr.startswith("free.py:1:8: error: no comment can suppress DF001 ")


def test_comments_for_disabled_rules_are_not_unused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text("x = 1  # noqa: DF101\ny = 1  # noqa: DF405\n")
    select = ("check", "--extend-select", "DF001")
    assert cli(*select, "--ignore", "DF101").exit_code == 0
    assert cli(*select, "--per-file-ignores", "free.py:DF101").exit_code == 0
    assert cli(*select).stdout.count("DF001") == 1
    assert cli(*select, "--target", "accelerator").stdout.count("DF001") == 2


def test_a_rewrite_removes_the_comment_of_a_fixed_finding(cli: Cli, tmp_path: Path) -> None:
    """Another fix, in a later round, removes what the comment silenced."""
    file = tmp_path / "tied.py"
    file.write_text("import torch\n\nx = torch.ones(2).cuda()  # noqa: DF102\n")
    cli("rewrite", "--in-place", "--extend-select", "DF001")
    assert file.read_text().endswith("x = torch.ones(2).to(device)\n")


# -- --baseline ----------------------------------------------------------------------------------------


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_a_baseline_hides_known_findings_that_move(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, a=TIED, b=TIED)
    done = cli("check", *BASELINE, "--write-baseline")
    assert (done.exit_code, done.output) == (0, "Wrote 2 findings to known.json.\n")
    write(tmp_path, a=f"import os\n\nif os:\n    pass\n{TIED}", b=TIED.replace("x =", "if 1:\n    x ="))
    done = cli("check", *BASELINE)
    assert (done.exit_code, done.stdout) == (0, "Nothing found in 2 files.\n")
    assert done.stderr == "2 known findings not shown (--baseline known.json).\n"
    assert cli("check", "-q", *BASELINE).output == ""


def test_a_repeated_finding_is_new(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, a=TIED)
    cli("check", *BASELINE, "--write-baseline")
    write(tmp_path, a=f"{TIED}x = torch.ones(2).cuda()\n", b=TIED)
    done = cli("check", *BASELINE)
    assert done.exit_code == 1
    assert [line.split(" ")[0] for line in done.stdout.splitlines()[:2]] == ["a.py:4:5:", "b.py:3:5:"]
    write(tmp_path, a=TIED.replace("x", "y"))
    assert "a.py:3:5" in cli("check", *BASELINE).stdout


def test_fixed_findings_are_mentioned_until_the_baseline_is_updated(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, a=TIED, b=TIED, c=TIED)
    cli("check", *BASELINE, "--write-baseline")
    write(tmp_path, a="")
    (tmp_path / "b.py").unlink()
    gone = "2 known findings no longer exist: update known.json with --write-baseline.\n"
    done = cli("check", *BASELINE)
    assert done.exit_code == 0
    assert done.stderr.endswith(gone)
    write(tmp_path, d=TIED)
    first = gone.replace("update", "fix the new findings, then update")
    assert cli("check", *BASELINE).stderr.endswith(first)
    (tmp_path / "d.py").unlink()
    # A run that leaves files or rules out says nothing of them, and forgets nothing:
    assert "no longer" not in cli("check", "c.py", *BASELINE).stderr
    assert "no longer" not in cli("check", *BASELINE, "--select", "DF2").stderr
    assert "no longer" not in cli("check", *BASELINE, "--per-file-ignores", "*:DF1").stderr
    before = (tmp_path / "known.json").read_bytes()
    cli("check", "c.py", *BASELINE, "--write-baseline")
    cli("check", *BASELINE, "--select", "DF2", "--write-baseline")
    assert (tmp_path / "known.json").read_bytes() == before
    assert cli("check", *BASELINE, "--write-baseline").output == (
        "Wrote 1 finding to known.json (0 new, 2 removed).\n"
    )
    assert list(json.loads((tmp_path / "known.json").read_text())["findings"]) == ["c.py"]
    assert "no longer" not in cli("check", *BASELINE).stderr
    write(tmp_path, a=TIED)
    assert "(1 new, 0 removed)" in cli("check", *BASELINE, "--write-baseline").output
    assert cli("check", *BASELINE, "--write-baseline").output == "Wrote 2 findings to known.json.\n"


def test_a_baseline_is_readable_sorted_and_relative_to_its_own_folder(cli: Cli, tmp_path: Path) -> None:
    for name in ("b", "a"):
        folder = tmp_path / "src" / name
        folder.mkdir(parents=True)
        (folder / "m.py").write_text(f'{TIED}y = x.to("cuda")  # é\n{TIED}', encoding="utf-8")
    (tmp_path / "lists").mkdir()
    cli("check", "--baseline", "lists/known.json", "--write-baseline")
    text = (tmp_path / "lists" / "known.json").read_text(encoding="utf-8")
    lines = [
        '      "DF101": [',
        '        "x = torch.ones(2).cuda()",',
        '        "x = torch.ones(2).cuda()"',
        "      ],",
        '      "DF102": [',
        '        "y = x.to(\\"cuda\\")  # é"',
        "      ]",
    ]
    assert text.splitlines() == [
        "{",
        '  "version": 1,',
        '  "findings": {',
        '    "../src/a/m.py": {',
        *lines,
        "    },",
        '    "../src/b/m.py": {',
        *lines,
        "    }",
        "  }",
        "}",
    ]


def test_the_baseline_of_the_configuration_is_found_from_any_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.devicefix]\nbaseline = "known.json"\n')
    (tmp_path / "src").mkdir()
    write(tmp_path / "src", a=TIED)
    assert cli("check").exit_code == 2  # it is not there yet
    cli("check", "--write-baseline")
    assert cli("check").exit_code == 0
    monkeypatch.chdir(tmp_path / "src")
    assert cli("check").exit_code == 0
    assert cli("check", "a.py").exit_code == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "known.json: No such file or directory; create it with --write-baseline"),
        ('{\n  "version": 1,\n<<<<<<< HEAD\n', "known.json:3:1: not a baseline: "),
        ("", "known.json:1:1: not a baseline: "),
        ("\xff", "known.json: not a baseline: "),
        ("[" * 100_000, "known.json"),
        ("[]", 'known.json: not a baseline: it has no "version"'),
        ('{"version": 2}', "its version is 2, but this devicefix supports only version 1"),
        ('{"version": 1}', '"findings" must be an object'),
        ('{"version": 1, "findings": {"a.py": []}}', "\"findings\", 'a.py' must be an object"),
        ('{"version": 1, "findings": {"a.py": {"DF101": [1]}}}', "'a.py', 'DF101' must be a list of strings"),
    ],
)
def test_a_broken_baseline_exits_2(cli: Cli, tmp_path: Path, content: str | None, words: str) -> None:
    write(tmp_path, a=TIED)
    if content is not None:
        (tmp_path / "known.json").write_bytes(content.encode("latin-1"))
        assert cli("check", *BASELINE, "--write-baseline").exit_code == 2  # it may be something else of value
        assert (tmp_path / "known.json").read_bytes() == content.encode("latin-1")
    done = cli("check", *BASELINE)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    assert words in done.stderr


def test_write_baseline_needs_a_file(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, a=TIED)
    assert "--baseline FILE" in cli("check", "--write-baseline").stderr
    done = cli("check", "--baseline", "nowhere/known.json", "--write-baseline")
    assert (done.exit_code, done.stderr) == (2, "Error: nowhere/known.json: No such file or directory\n")


# -- what is ignored where: as ruff does ---------------------------------------------------------------


def test_what_comments_suppress_can_be_seen(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TIED.replace("cuda()", "cuda()  # noqa"))
    assert cli("check", "-q").stdout == ""
    assert "DF101" in cli("check", "-q", "--ignore-noqa").stdout
    assert "+x = torch.ones(2).to(device)  # noqa" in cli("rewrite", "--ignore-noqa").stdout


SEVERAL = "import os\ndef f():\n    x = 1\n    return y\ndef f(): pass\n"  # F401, F841, F821, F811
FOUND = ("F401", "F811", "F821", "F841")


IN_FILE: list[dict[str, list[str]]] = [
    {}, {"select": ["F"]}, {"ignore": ["F8"]}, {"select": ["F8"], "ignore": ["F841"]},
    {"select": ["F841"], "ignore": ["F8"]}, {"extend-select": ["F841"], "ignore": ["F8"]},
    {"select": ["F4"], "extend-select": ["F82"]},
]  # fmt: skip
GIVEN = [
    {}, {"select": "F8"}, {"ignore": "F4"}, {"extend_select": "F8"}, {"ignore": "F8"},
    {"extend_select": "F841", "ignore": "F8"}, {"select": "F811", "ignore": "F8"},
]  # fmt: skip


@pytest.mark.needs("ruff")
@pytest.mark.parametrize("file", IN_FILE, ids=str)
@pytest.mark.parametrize("options", GIVEN, ids=str)
def test_rules_are_selected_as_ruff_does(
    tmp_path: Path, file: dict[str, list[str]], options: dict[str, str]
) -> None:
    (tmp_path / "m.py").write_text(SEVERAL)
    keys = "".join(f"{name} = {json.dumps(value)}\n" for name, value in file.items())
    (tmp_path / "ruff.toml").write_text(f"[lint]\n{keys}")
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    output = ruff(*given, "m.py", folder=tmp_path)
    in_file: dict[str, Any] = {name.replace("-", "_"): tuple(value) for name, value in file.items()}
    settings = combined(Settings(**in_file), {name: (value,) for name, value in options.items()})
    assert [code for code in FOUND if settings.enabled(code)] == [
        code for code in FOUND if f" {code} " in output
    ]


TREE = ("a.py", "tests/a.py", "tests/deep/test_a.py", "src/tests/b.py", "src/[x]/c.py", "src/d.py")


@pytest.mark.needs("ruff")
@pytest.mark.parametrize(
    "pattern",
    ["*.py", "a.py", "tests/*", "tests/*.py", "tests/**/*.py", "tests/**/test_*.py", "**/tests/*", "src/?.py",
     "src/[a-d].py", "src/[!a-c].py", "{src,tests}/*", "!tests/*", "!*/a.py", "./tests/*", "tests",
     "src/[[]x]/*", "*/tests/*", "../*/tests/*", "{a,test_a}.py", "**/*", "src/**", "test*"],
)  # fmt: skip
def test_globs_are_those_of_ruff(tmp_path: Path, pattern: str) -> None:
    root = tmp_path / "[root] {x}"
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("import os\n")
    (root / "ruff.toml").write_text(f"[lint.per-file-ignores]\n{json.dumps(pattern)} = ['F401']\n")
    output = ruff(".", folder=root).splitlines()
    wanted = [name for name in TREE if not any(line.startswith(f"{name}:1:8: F401") for line in output)]
    ignores = ((pattern, ("F401",), root),)
    assert [name for name in TREE if off(str(root / name), ignores)] == wanted


def test_per_file_ignores_of_the_file_and_of_the_command_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    write(tmp_path, a=TIED, b=TIED)
    write(tmp_path / "tests", a=TIED)
    (tmp_path / "pyproject.toml").write_text('[tool.devicefix.per-file-ignores]\n"tests/*" = ["DF1"]\n')

    def found(*options: str) -> list[str]:
        lines = cli("check", "-q", *options).stdout.splitlines()
        return [line.partition(":")[0].replace("\\", "/") for line in lines]

    assert found() == ["a.py", "b.py"]
    assert found("--select", "DF101") == ["a.py", "b.py"]  # whatever selects it
    assert found("--per-file-ignores", "b.py:DF101,a.py:DF2") == ["a.py", "tests/a.py"]
    assert found("--extend-per-file-ignores", "b.py:DF101") == ["a.py"]
    assert found("--per-file-ignores", "!b.py:DF101") == ["b.py"]
    assert found("--no-cache", "--extend-exclude", "/b.py") == ["a.py"]
    done = cli("check", "--per-file-ignores", "a.py:DF101,DF102")
    assert done.exit_code == 2
    assert "'DF102' is not a pattern and a code" in done.stderr


def test_extend_exclude_adds_to_exclude_from_its_own_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.devicefix]\nexclude = ["/src/a.py"]\nextend-exclude = ["/src/b.py"]\n'
    )
    write(tmp_path / "src", a=TIED, b=TIED, c=TIED, d=TIED)
    monkeypatch.chdir(tmp_path / "src")

    def found(*options: str) -> list[str]:
        return [line.partition(":")[0] for line in cli("check", "-q", *options).stdout.splitlines()]

    assert found() == ["c.py", "d.py"]
    assert found("--extend-exclude", "/c.py") == ["d.py"]
    assert found("--exclude", "/c.py") == ["a.py", "d.py"]
