"""The nearest configuration of each file, and the border of a project."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import Cli, Git, ProjectFolder
from libcst import parse_module
from libcst.codemod import CodemodContext

from devicefix.codemod.command import DeviceAgnostic
from devicefix.config.resolver import Nearest
from devicefix.config.settings import Settings
from devicefix.files.border import Borders
from devicefix.server.flake8 import Plugin
from devicefix.server.workspace import Workspace

UNSURE = "import torch\n\nassert not config.cuda or torch.cuda.is_available()\nrun(3)\n"
TIED = "import torch\n\nx = torch.ones(2).cuda()\n"
FILES = {
    "devicefix.toml": "",
    "a.py": TIED,
    "inner/devicefix.toml": 'ignore = ["DF101"]\n',
    "inner/b.py": TIED,
    "inner/deep/c.py": TIED,
}


def codes(cli: Cli, *arguments: str) -> dict[str, set[str]]:
    """Return the codes of the findings in each file, by the names of the files."""
    found: dict[str, set[str]] = {}
    for each in json.loads(cli("check", "--no-cache", "--output-format", "json", *arguments).stdout):
        found.setdefault(Path(each["filename"]).name, set()).add(each["code"])
    return found


# -- one verdict, however a file is named --------------------------------------------------------------


@pytest.mark.parametrize(
    "paths", [["."], ["inner"], ["inner/b.py", "inner/deep/c.py"], ["a.py", "inner/b.py", "inner/deep/c.py"]]
)
def test_each_file_obeys_its_nearest_configuration(
    cli: Cli, project: ProjectFolder, paths: list[str]
) -> None:
    project.write(FILES)
    found = codes(cli, *paths)
    assert "b.py" not in found
    assert "c.py" not in found
    assert found.get("a.py") == ({"DF101"} if "a.py" in paths or "." in paths else None)


@pytest.mark.needs("flake8")
def test_all_surfaces_agree(cli: Cli, project: ProjectFolder) -> None:
    """flake8, the server, the codemod and the standard input have the verdict of the command line."""
    project.write(FILES)
    done = subprocess.run(
        [sys.executable, "-m", "flake8", "--isolated", "--select=DF", "-j1", "."],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["./a.py"]
    workspace = Workspace()
    workspace.tops = [str(project.path)]
    for name, count in (("a.py", 1), ("inner/b.py", 0), ("inner/deep/c.py", 0)):
        path = str(project.path / name)
        looked = workspace.look(f"file://{path}", path, TIED)
        assert looked is not None
        assert len(looked.findings) == count, name
        piped = cli("check", "--stdin-filename", name, "-", input=TIED)
        assert piped.exit_code == count, name
        codemod = DeviceAgnostic(CodemodContext(filename=path))
        new = codemod.transform_module(parse_module(TIED))
        assert (new.code != TIED) == bool(count), name


def test_every_setting_of_a_file_is_that_of_its_configuration(cli: Cli, project: ProjectFolder) -> None:
    project.write(
        {
            "devicefix.toml": 'exclude = ["skipped.py"]\n',
            "skipped.py": TIED,
            "inner/devicefix.toml": (
                'target = "accelerator"\ndocs = true\nunsafe-fixes = true\nexclude = ["gone/"]\n'
                'per-file-ignores = { "quiet.py" = ["ALL"] }\n'
            ),
            "inner/skipped.py": TIED,
            "inner/quiet.py": TIED,
            "inner/gone/x.py": TIED,
            "inner/page.md": f"```python\n{TIED}```\n",
            "page.md": f"```python\n{TIED}```\n",
            "inner/jobs.py": "import torch\n\nx = torch.cuda.device_count()\n",
        }
    )
    found = codes(cli, ".")
    assert set(found) == {"skipped.py", "page.md", "jobs.py"}
    assert found == codes(cli, "inner")
    assert "DF405" in found["jobs.py"]


def test_a_configuration_without_our_table_is_none(cli: Cli, project: ProjectFolder) -> None:
    project.write(FILES | {"inner/deep/pyproject.toml": "[tool.other]\nx = 1\n"})
    assert "c.py" not in codes(cli, ".")


def test_an_invalid_configuration_names_its_file(cli: Cli, project: ProjectFolder) -> None:
    project.write(FILES | {"inner/devicefix.toml": "selekt = []\n"})
    done = cli("check", ".")
    assert done.exit_code == 2
    place = project.path / "inner" / "devicefix.toml"
    wrong = "the configuration has no key 'selekt'; did you mean 'select'?"
    assert done.stderr.endswith(f"Error: {place}:1:1: {wrong}\n")
    assert cli("check", "a.py").exit_code == 2  # the facts of the project depend on it


def test_an_excluded_folder_has_no_say(cli: Cli, project: ProjectFolder) -> None:
    project.write(
        FILES | {"devicefix.toml": 'exclude = ["inner/"]\n', "inner/devicefix.toml": "selekt = []\n"}
    )
    assert set(codes(cli, ".")) == {"a.py"}


def test_each_configuration_has_its_own_baseline(cli: Cli, project: ProjectFolder) -> None:
    project.write(
        {
            "devicefix.toml": 'baseline = "known.json"\n', "a.py": TIED,
            "inner/devicefix.toml": 'baseline = "known.json"\n', "inner/b.py": TIED,
        }
    )  # fmt: skip
    assert cli("check", "--write-baseline", ".").exit_code == 0
    for file, name in (("known.json", "a.py"), ("inner/known.json", "b.py")):
        assert list(json.loads((project.path / file).read_text())["findings"]) == [name]
    for paths in (["."], ["inner/b.py"], ["a.py", "inner/b.py"]):
        assert cli("check", *paths).exit_code == 0


def test_unsafe_fixes_are_those_of_the_file(cli: Cli, project: ProjectFolder) -> None:
    project.write({"a.py": UNSURE, "inner/devicefix.toml": "unsafe-fixes = true\n", "inner/b.py": UNSURE})
    lines = cli("check", "--no-cache", "--output-format", "concise", ".").stdout.splitlines()
    marked = {line.partition(":")[0]: "[*]" in line for line in lines[:2]}
    assert marked == {"a.py": False, "inner/b.py": True}
    assert "[*] 1 fixable with `--fix`, 1 more with `--unsafe-fixes`." in lines
    cli("rewrite", "--in-place", ".")
    assert project.read("a.py") == UNSURE
    assert project.read("inner/b.py") != UNSURE


def test_the_cache_knows_the_settings_of_each_file(cli: Cli, project: ProjectFolder) -> None:
    project.write({f"m{number}.py": TIED for number in range(50)} | FILES)
    before = cli("check", ".").stdout
    (project.path / "inner" / "devicefix.toml").unlink()
    after = cli("check", ".").stdout
    assert before != after
    assert after == cli("check", "--no-cache", ".").stdout
    project.write({"inner/devicefix.toml": FILES["inner/devicefix.toml"]})
    assert cli("check", ".").stdout == before


# -- extend --------------------------------------------------------------------------------------------


def test_extend(cli: Cli, project: ProjectFolder) -> None:
    project.write(
        {
            "base/pyproject.toml": (
                '[tool.devicefix]\nselect = ["DF1"]\nexclude = ["gen/"]\nextend-exclude = ["old/"]\n'
                'target = "accelerator"\n'
            ),
            "app/devicefix.toml": (
                'extend = "../base/pyproject.toml"\ntarget = "cuda"\nextend-select = ["DF201"]\n'
                'ignore = ["DF101"]\nextend-exclude = ["new/"]\n'
            ),
            "app/a.py": TIED,
        }
    )
    shown = json.loads(cli("config", "--path", "app", "--output-format", "json").stdout)
    assert {each["key"]: each["value"] for each in shown}["target"] == "cuda"
    shown = cli("config", "--path", "app").stdout
    assert 'select = ["DF1"]' in shown
    assert 'extend-exclude = ["old/"]' in shown
    assert 'extend-exclude = ["new/"]' in shown
    assert f"{project.path / 'base' / 'pyproject.toml'}:2" in shown
    resolver = Nearest(_load, project.path / "app")
    assert [resolver.root.enabled(code) for code in ("DF101", "DF104", "DF201", "DF301")] == [
        False, True, True, False,
    ]  # fmt: skip
    exclusions = resolver.root.exclude + resolver.root.extend_exclude
    folders = {each.pattern: each.root.name for each in exclusions}
    assert folders == {"gen/": "base", "old/": "base", "new/": "app"}


def _load(file: Path | None) -> Settings:
    from devicefix.config.load import load
    from devicefix.rules import known_codes

    assert file is not None
    return load(file, known_codes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('extend = "gone.toml"', "devicefix.toml:1:1: extend: {folder}/gone.toml: No such file or directory"),
        ('extend = "devicefix.toml"', "devicefix.toml:1:1: extend: {folder}/devicefix.toml extends itself"),
        ('jobs = 1\nextend = "b.toml"', "b.toml:1:1: extend: {folder}/devicefix.toml extends itself"),
        ('extend = "c.toml"', "c.toml:1:1: the configuration has no key 'jbos'; did you mean 'jobs'?"),
        ('extend = "/etc/passwd"', "devicefix.toml:1:1: extend: must be a TOML file"),
        ("extend = 1", "devicefix.toml:1:1: extend: must be a path"),
    ],
)
def test_wrong_extensions(cli: Cli, project: ProjectFolder, text: str, words: str) -> None:
    project.write(
        {"devicefix.toml": text, "b.toml": 'extend = "devicefix.toml"', "c.toml": "jbos = 1", "a.py": TIED}
    )
    done = cli("check", ".")
    assert done.exit_code == 2
    assert words.format(folder=project.path) in done.stderr


def test_a_chain_of_extensions_has_a_limit(cli: Cli, project: ProjectFolder) -> None:
    chain = {f"c{number}.toml": f'extend = "c{number + 1}.toml"\n' for number in range(1000)}
    project.write({"devicefix.toml": 'extend = "c0.toml"\n', "a.py": TIED, **chain})
    done = cli("check", ".")
    assert done.exit_code == 2
    assert "c19.toml:1:1: extend: more than 20 files extend one another" in done.stderr


def test_an_extended_file_has_the_same_limits(cli: Cli, project: ProjectFolder) -> None:
    project.write({"app/devicefix.toml": 'extend = "../base.toml"', "app/a.py": TIED})
    for text in ('cache-dir = "../out"', 'baseline = "/etc/hosts"', 'max-file-size = "1G"'):
        project.write({"base.toml": text})
        done = cli("check", "app")
        assert done.exit_code == 2
        assert f"{project.path / 'base.toml'}:1:1: {text.partition(' =')[0]}: must be " in done.stderr
    os.unlink(project.path / "base.toml")
    os.mkfifo(project.path / "base.toml")
    assert "base.toml: this is a pipe" in cli("check", "app").stderr


# -- the options ---------------------------------------------------------------------------------------


def test_isolated(cli: Cli, project: ProjectFolder) -> None:
    project.write(FILES)
    assert set(codes(cli, "--isolated", ".")) == {"a.py", "b.py", "c.py"}
    done = cli("check", "--isolated", "--config", "devicefix.toml", ".")
    assert done.exit_code == 2
    assert "--isolated ignores configuration files, so it cannot be used with --config FILE" in done.stderr


def test_one_configuration_for_all_files(cli: Cli, project: ProjectFolder) -> None:
    project.write(FILES)
    assert set(codes(cli, "--config", "devicefix.toml", ".")) == {"a.py", "b.py", "c.py"}
    assert set(codes(cli, "--config", "inner/devicefix.toml", ".")) == set()


def test_a_value_overrides_each_configuration_and_an_option_overrides_it(
    cli: Cli, project: ProjectFolder
) -> None:
    project.write(FILES)
    assert set(codes(cli, "--config", "ignore = []", ".")) == {"a.py", "b.py", "c.py"}
    assert set(codes(cli, "--config", "ignore = ['DF101']", "--select", "ALL", ".")) == {
        "a.py",
        "b.py",
        "c.py",
    }
    shown = cli("config", "--config", "jobs = 3", "--config", 'target="accelerator"', "--jobs", "2").stdout
    lines = {line.partition(" = ")[0]: line.split("# ")[1] for line in shown.splitlines()[1:]}
    assert (lines["jobs"], lines["target"]) == ("--jobs", "--config")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("jbos = 3", "the configuration has no key 'jbos'; did you mean 'jobs'?"),
        ("jobs = 0", "jobs: must be a positive integer"),
        ("jobs = ", "'jobs = ' is neither a file nor valid TOML: "),
        ("gone.toml", "'gone.toml' does not exist; specify a file or a TOML `KEY = VALUE` pair"),
        ("extend = 'a.toml'", "use --config FILE instead"),
    ],
)
def test_wrong_values(cli: Cli, project: ProjectFolder, value: str, words: str) -> None:
    project.write(FILES)
    done = cli("check", "--config", value, ".")
    assert done.exit_code == 2
    assert words in done.stderr


def test_force_exclude(cli: Cli, project: ProjectFolder) -> None:
    project.write(
        {
            "devicefix.toml": 'exclude = ["gen/"]\n', "a.py": TIED, "gen/b.py": TIED, ".venv/c.py": TIED,
            "inner/devicefix.toml": 'force-exclude = true\nexclude = ["d.py"]\n', "inner/d.py": TIED,
        }
    )  # fmt: skip
    named = ["a.py", "gen/b.py", ".venv/c.py", "inner/d.py"]
    assert set(codes(cli, *named)) == {"a.py", "b.py", "c.py"}
    assert set(codes(cli, "--force-exclude", *named, "gen")) == {"a.py"}
    piped = cli("rewrite", "--force-exclude", "--stdin-filename", "gen/b.py", "-", input=TIED)
    assert (piped.exit_code, piped.stdout) == (0, TIED)
    cli("rewrite", "--in-place", "--force-exclude", *named)
    assert [project.read(name) == TIED for name in named] == [False, True, True, True]


def test_no_respect_gitignore(cli: Cli, project: ProjectFolder, git: Git) -> None:
    project.write({".gitignore": "out/\n", "a.py": TIED, "out/b.py": TIED})
    git("init", "-q")
    assert set(codes(cli, ".")) == {"a.py"}
    assert set(codes(cli, "--no-respect-gitignore", ".")) == {"a.py", "b.py"}
    project.write({"devicefix.toml": "respect-gitignore = false\n"})
    assert set(codes(cli, ".")) == {"a.py", "b.py"}


def test_show_files(cli: Cli, project: ProjectFolder) -> None:
    project.write(FILES)
    done = cli("check", "--show-files", "inner", "a.py")
    assert (done.exit_code, done.stdout.splitlines()) == (0, ["a.py", "inner/b.py", "inner/deep/c.py"])


def test_all_rules(cli: Cli, project: ProjectFolder) -> None:
    project.write({"a.py": TIED})
    assert codes(cli, "--select", "ALL", ".") == codes(cli, "--select", "DF", ".")
    assert codes(cli, "--select", "ALL", "--ignore", "DF1", ".") == {}
    assert codes(cli, "--select", "DF101", "--ignore", "ALL", ".") == {"a.py": {"DF101"}}
    project.write({"devicefix.toml": 'select = ["all"]\nper-file-ignores = { "a.py" = ["ALL"] }\n'})
    assert codes(cli, ".") == {}


@pytest.mark.parametrize(
    ("options", "configuration", "fixes"),
    [
        ([], "", True),
        (["--unfixable", "DF101"], "", False),
        (["--unfixable", "DF1", "--fixable", "DF101"], "", True),
        (["--fixable", "DF2"], "", False),
        (["--fixable", "DF2", "--extend-fixable", "DF101"], "", True),
        ([], 'unfixable = ["DF101"]\n', False),
        (["--fixable", "ALL"], 'unfixable = ["DF101"]\n', True),
        (["--extend-fixable", "DF101"], 'fixable = ["DF2"]\n', True),
    ],
)
def test_fixable(
    cli: Cli, project: ProjectFolder, options: list[str], configuration: str, fixes: bool
) -> None:
    project.write({"a.py": TIED, "devicefix.toml": configuration})
    done = cli("check", "--no-cache", "--output-format", "json", *options, "a.py")
    assert [bool(each["fix"]) for each in json.loads(done.stdout)] == [fixes]
    assert ("[*]" in cli("check", "--output-format", "concise", *options, "a.py").stdout) == fixes
    cli("rewrite", "--in-place", *options, "a.py")
    assert (project.read("a.py") != TIED) == fixes


# -- the border of a project ---------------------------------------------------------------------------

OWN = "class Batch:\n    def cuda(self):\n        return self\n"
MOVED = "import torch\n\n\ndef run(model):\n    model = model.cuda()\n    return model\n"


def test_repositories_do_not_change_each_others_fixes(cli: Cli, project: ProjectFolder) -> None:
    project.write({"one/.git/HEAD": "", "one/batch.py": OWN, "two/.git/HEAD": "", "two/use.py": MOVED})
    alone = cli("rewrite", "two").stdout
    assert alone
    assert cli("rewrite", "one", "two").stdout == alone


def test_files_of_a_repository_do_however_they_are_named(
    cli: Cli, project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package may get objects of a class that it does not import; its files are read, but not checked."""
    project.write({".git/HEAD": "", "one/pyproject.toml": "", "one/batch.py": OWN + TIED})
    project.write({"two/setup.py": "", "two/use.py": MOVED})
    lines = cli("check", "--output-format", "concise", ".").stdout.splitlines()
    expected = [line for line in lines if line.startswith("two")]
    assert "the object's class may define its own `cuda`" in expected[0]
    for paths in (["two"], ["two/use.py"], [str(project.path / "two" / "use.py")]):
        for cached in ([], ["--no-cache"], []):
            found = cli("check", "--output-format", "concise", *cached, *paths).stdout.splitlines()
            assert [line.replace(f"{project.path}/", "") for line in found[:1]] == expected
            assert found[1] == f"Found 1 finding in 1 of {'2 files' if paths == ['two'] else '1 file'}."
    piped = cli("check", "--output-format", "concise", "--stdin-filename", "two/use.py", "-", input=MOVED)
    assert piped.stdout.splitlines()[:1] == expected
    (violation,) = Plugin(ast.parse(MOVED), "two/use.py", MOVED.splitlines(keepends=True)).run()
    assert violation[2] in expected[0].replace("[*] ", "")
    monkeypatch.chdir(project.path / "two")
    inside = cli("check", "--output-format", "concise", "use.py").stdout.splitlines()
    assert inside[:1] == [expected[0].replace("two/", "")]


def test_a_file_that_was_only_read_is_checked_later(cli: Cli, project: ProjectFolder) -> None:
    project.write({".git/HEAD": "", "a.py": TIED, **{f"m{number}.py": TIED for number in range(50)}})
    assert "in 1 of 1 file" in cli("check", "a.py").stdout
    assert "in 51 of 51 files" in cli("check", ".").stdout
    assert "in 1 of 1 file" in cli("check", "a.py").stdout
    assert "in 51 of 51 files" in cli("check", ".").stdout


def test_a_change_of_another_file_is_seen(cli: Cli, project: ProjectFolder) -> None:
    project.write({".git/HEAD": "", "batch.py": OWN, "use.py": MOVED, **{f"m{n}.py": "" for n in range(50)}})
    before = cli("check", "use.py").stdout
    assert cli("check", "use.py").stdout == before
    project.write({"batch.py": "class Batch:\n    pass\n"})
    after = cli("check", "use.py").stdout
    assert after == cli("check", "--no-cache", "use.py").stdout != before
    assert cli("check", ".").stdout.splitlines()[0] == after.splitlines()[0]


def test_borders(tmp_path: Path) -> None:
    for name in ("repo/.git/HEAD", "repo/sub/.git", "repo/sub/x/pyproject.toml", "plain/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    borders = Borders()
    for path, border in {
        "repo/a.py": "repo", "repo/sub/x/b.py": "repo", "plain/src/c.py": "plain", "repo/sub/d.py": "repo",
    }.items():  # fmt: skip
        assert borders.of(os.path.join(tmp_path, path)) == str(tmp_path / border)
    assert Borders().of(str(tmp_path / "none.py")) == ""


def test_a_part_of_a_program_that_nothing_marks_is_no_project(cli: Cli, project: ProjectFolder) -> None:
    project.write({"batch.py": OWN, "part/setup.py": "", "part/use.py": MOVED, "repo/.git/HEAD": ""})
    project.write({"repo/use.py": MOVED})
    lines = cli("check", "--output-format", "concise", ".").stdout.splitlines()
    assert ["object's class may define" in line for line in lines[:2]] == [True, False]


def test_the_server_knows_the_border(project: ProjectFolder) -> None:
    project.write({"one/.git/HEAD": "", "one/batch.py": OWN, "two/.git/HEAD": "", "two/use.py": MOVED})
    safeties = []
    for tops in ([project.path], [project.path / "two"]):
        workspace = Workspace()
        workspace.tops = [str(top) for top in tops]
        path = str(project.path / "two" / "use.py")
        looked = workspace.look("file:///use.py", path, MOVED)
        assert looked is not None
        safeties.append([finding.safety for finding in looked.findings])
    assert safeties[0] == safeties[1]


@pytest.mark.parametrize(
    ("name", "text", "length"),
    [
        ("pyproject.toml", "[tool.black]\nline-length = 120\n", 120),
        ("pyproject.toml", "[tool.ruff]\nline-length = 100\n[tool.black]\nline-length = 120\n", 100),
        ("pyproject.toml", "[tool.ruff.lint]\nselect = []\n", 88),
        ("pyproject.toml", "[project]\nname = 'x'\n", None),
        ("ruff.toml", "line-length = 79\n", 79),
        (".flake8", "[flake8]\nmax-line-length = 99\n", 99),
        ("setup.cfg", "[pycodestyle]\nmax_line_length = 95\n", 95),
        (".flake8", "max-line-length = 99\n", None),
        ("pyproject.toml", "[tool.black\n", None),
    ],
)
def test_the_line_length_is_that_of_the_nearest_formatter(
    tmp_path: Path, name: str, text: str, length: int | None
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / name).write_text(text)
    found = Nearest(lambda _: Settings(), tmp_path, lambda _: None)
    assert found.of(str(tmp_path / "src" / "a.py")).line_length == length
