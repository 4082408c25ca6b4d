"""The settings and where they come from."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from helpers import Cli

from devicefix.cli import COMMANDS
from devicefix.config.load import find, load, read
from devicefix.config.settings import KEYS, ConfigError, Key, Settings
from devicefix.config.values import Exclusion
from devicefix.rules import known_codes

CODES = ("DF901",)


@pytest.mark.parametrize(
    ("select", "ignore", "on"),
    [
        ((), (), True),
        (("DF101",), (), True),
        (("DF1",), (), True),
        (("DF",), (), True),
        (("DF2", "DF1"), (), True),
        (("DF2",), (), False),
        (("DF1011",), (), False),
        ((), ("DF1",), False),
        ((), ("DF2",), True),
        (("DF1",), ("DF101",), False),
        (("DF101",), ("DF1",), True),
        (("DF101",), ("DF101",), False),
    ],
)
def test_the_longer_prefix_wins(select: tuple[str, ...], ignore: tuple[str, ...], on: bool) -> None:
    assert Settings(select=select, ignore=ignore).enabled("DF101") is on


def test_a_rule_that_is_off_by_default_must_be_selected() -> None:
    assert not Settings().enabled("DF101", default=False)
    assert not Settings(ignore=("DF2",)).enabled("DF101", default=False)
    assert Settings(select=("DF1",)).enabled("DF101", default=False)


def test_all_keys_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(
        '[tool.devicefix]\nselect = ["DF9"]\nignore = ["df901"]\nexclude = ["gen/"]\n'
        "unsafe-fixes = true\njobs = 3\nverbose = true\nquiet = true\n"
    )
    assert load(file, known_codes) == Settings(
        select=("DF9",),
        ignore=("DF901",),
        exclude=(Exclusion("gen/", tmp_path),),
        unsafe_fixes=True,
        jobs=3,
        verbose=True,
        quiet=True,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[tool.devicefix]\nselekt = []",
            "2:1: [tool.devicefix] has no key 'selekt'; did you mean 'select'?",
        ),
        (
            "[tool.devicefix]\n\n  unsafe_fixes = true",
            "3:3: [tool.devicefix] has no key 'unsafe_fixes'; did you",
        ),
        ("[tool.devicefix]\nzzz = 1", "2:1: [tool.devicefix] has no key 'zzz'"),
        ('[tool.devicefix]\nselect = "DF9"', "2:1: [tool.devicefix] select: must be a list of strings"),
        ("[tool.devicefix]\nexclude = [1]", "2:1: [tool.devicefix] exclude: must be a list of strings"),
        (
            '[tool.devicefix]\nselect = ["DF999"]',
            "2:1: [tool.devicefix] select: no rule has the code or name 'DF999'",
        ),
        ("[tool.devicefix]\nunsafe-fixes = 1", "2:1: [tool.devicefix] unsafe-fixes: must be true or false"),
        ("[tool.devicefix]\njobs = 0", "2:1: [tool.devicefix] jobs: must be a positive integer"),
        ("[tool.devicefix]\njobs = true", "2:1: [tool.devicefix] jobs: must be a positive integer"),
        ("[tool]\ndevicefix = 1", "2:1: [tool.devicefix] must be a table"),
        ("[tool.devicefix", "1:16: Expected ']' at the end of a table declaration"),
        ("[tool.devicefix]\nselect = [", "2:11: "),
        ("# ab\n# \xff\n[tool.devicefix]", "2:3: byte 0xff is not valid UTF-8"),
        # However a key is written, and whatever looks like it before:
        ("# jobs = 0\n[tool]\ndevicefix.jobs = 0", "3:11: [tool.devicefix] jobs"),
        ("[tool]\ndevicefix = { quiet = true, jobs = 0 }", "2:29: [tool.devicefix] jobs"),
        (
            'x = """\n[tool.devicefix]\njobs = 0\n"""\n[tool.devicefix]\n\'jobs\' = 0',
            "6:1: [tool.devicefix] j",
        ),
        ('[tool.other]\njobs = 0\n[tool.devicefix]\n"jobs" = 0', "4:1: [tool.devicefix] jobs"),
        ('[tool.devicefix]\nselect = [\n  "DF1", # jobs\n]\r\njobs = 0', "5:1: [tool.devicefix] jobs"),
        (
            "[tool.devicefix.per-file-ignores]\n'a' = 1",
            "1:17: [tool.devicefix] per-file-ignores: 'a': must be",
        ),
        ('[tool.devicefix]\n"j\\u006fbs" = 0', " [tool.devicefix] jobs"),  # with an escape: no position
    ],
)
def test_mistakes_are_reported_with_their_position(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load(file, known_codes)
    assert str(caught.value).startswith(f"{file}:{words}")


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "pyproject.toml", known_codes)


def test_the_nearest_file_with_the_table_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix]\njobs = 1\n")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.devicefix]\njobs = 2\n")
    (deep.parent / "pyproject.toml").write_text('[project]\ndependencies = ["devicefix"]\n')
    (deep / "pyproject.toml").write_text("[broken\n")  # but nothing in it speaks of us
    assert find(deep) == tmp_path / "a" / "pyproject.toml"
    assert find(tmp_path) == tmp_path / "pyproject.toml"


def test_a_broken_file_that_speaks_of_us_is_found(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix\n")
    assert find(tmp_path) == tmp_path / "pyproject.toml"


def test_target_and_torch_version_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.devicefix]\ntarget = "accelerator"\ntorch-version = "2.10.1"\n')
    settings = load(file, known_codes)
    assert (settings.target, settings.torch_version) == ("accelerator", (2, 10))


@pytest.mark.parametrize("line", ['target = "tpu"', "torch-version = 2.10", 'torch-version = "new"'])
def test_a_wrong_target_or_version_is_an_error(tmp_path: Path, line: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[tool.devicefix]\n{line}\n")
    with pytest.raises(ConfigError, match=line.partition(" ")[0]):
        load(file, known_codes)


# -- files of their own --------------------------------------------------------------------------------


def test_a_separate_file_holds_the_keys_at_the_top(tmp_path: Path) -> None:
    file = tmp_path / "devicefix.toml"
    file.write_text('jobs = 3\n[per-file-ignores]\n"a.py" = ["DF1"]\n')
    settings = load(file, known_codes)
    assert settings.jobs == 3
    assert [(each.pattern, each.codes, each.root) for each in settings.per_file_ignores] == [
        ("a.py", ("DF1",), tmp_path)
    ]
    file.write_text("\njbos = 3\n")
    with pytest.raises(ConfigError) as caught:
        load(file, known_codes)
    assert str(caught.value) == f"{file}:2:1: the configuration has no key 'jbos'; did you mean 'jobs'?"
    file.write_text("[tool.devicefix]\njobs = 3\n")
    with pytest.raises(
        ConfigError, match=r"in devicefix.toml, keys belong at the top level, without \[tool.devicefix\]"
    ):
        load(file, known_codes)


def test_a_file_of_any_name_may_be_of_either_form(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    for text in ("[tool.devicefix]\njobs = 3\n", "jobs = 3\n"):
        file.write_text(text)
        assert load(file, known_codes).jobs == 3


def test_the_nearest_file_is_found_and_in_a_folder_its_own_before_pyproject(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    files = [tmp_path / name for name in ("pyproject.toml", "devicefix.toml", ".devicefix.toml")]
    for file in [*files, tmp_path / "a" / "pyproject.toml"]:
        file.write_text("[tool.devicefix]\n" if file.name == "pyproject.toml" else "")
        assert find(deep) == file
    (deep / "devicefix.toml").mkdir()  # a folder is not a file
    assert find(deep) == tmp_path / "a" / "pyproject.toml"


# -- the table of keys, and what shows it --------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_the_example_of_a_key_is_one(key: Key, tmp_path: Path) -> None:
    file = tmp_path / "inner" / "devicefix.toml"
    file.parent.mkdir()
    (tmp_path / "devicefix.toml").touch()  # which `extend` names
    file.write_text(f"{key.example}\n")
    assert list(read(file).table) == [key.name]
    default, settings = Settings(), load(file, known_codes)
    assert [
        field.name
        for field in fields(Settings)
        if getattr(settings, field.name) != getattr(default, field.name)
    ] == [key.field]
    assert hash(settings) != hash(default)


def test_every_key_is_an_option_with_its_help(cli: Cli) -> None:
    shown = "".join(cli(name, "--help-all").output for name in COMMANDS)
    shown = re.sub(r"\s+", " ", shown)
    for key in KEYS.values():
        if key.name != "extend":
            assert f"--{key.name}" in shown
            assert key.summary in shown


def test_config_shows_what_is_in_force_and_where_it_comes_from(cli: Cli, tmp_path: Path) -> None:
    assert "# configuration: none" in cli("config").stdout
    (tmp_path / "pyproject.toml").write_text(
        '[tool.devicefix]\nignore = ["DF7"]\nselect = [\n  "DF",\n]\nquiet = true\nexclude = ["a/"]\n'
    )
    file = tmp_path / "pyproject.toml"

    def shown(*options: str, **more: Any) -> dict[str, list[tuple[str, str]]]:
        done = cli("config", *options, **more)
        assert done.exit_code == 0
        found: dict[str, list[tuple[str, str]]] = {}
        for line in done.stdout.splitlines()[1:]:
            match = re.fullmatch(r"([\w-]+) = (.*?) +# (.*)", line)
            assert match, line
            found.setdefault(match[1], []).append((match[2], match[3]))
        assert list(found) == list(KEYS)
        return found

    plain = shown()
    assert plain["select"] == [('["DF"]', f"{file}:3")]
    assert plain["ignore"] == [('["DF7"]', f"{file}:2")]
    assert plain["quiet"] == [("true", f"{file}:6")]
    assert plain["jobs"] == [("<none>", "default")]
    assert plain["per-file-ignores"] == [("{}", "default")]
    given = shown(
        "--ignore", "DF8", "--exclude", "b/", "--jobs", "3", "--no-config-files", "--torch-version", "2.6",
        "--per-file-ignores", "a.py:DF1",
        env={"DEVICEFIX_CACHE_DIR": "kept", "DEVICEFIX_OUTPUT_FORMAT": "json"},
    )  # fmt: skip
    assert given["ignore"] == [('["DF7"]', f"{file}:2"), ('["DF8"]', "--ignore")]
    assert given["exclude"] == [('["b/"]', "--exclude")]
    assert given["jobs"] == [("3", "--jobs")]
    assert given["config-files"] == [("false", "--no-config-files")]
    assert given["torch-version"] == [('"2.6"', "--torch-version")]
    assert given["per-file-ignores"] == [('{ "a.py" = ["DF1"] }', "--per-file-ignores")]
    assert given["cache-dir"] == [('"kept"', "$DEVICEFIX_CACHE_DIR")]
    assert given["output-format"] == [('"json"', "$DEVICEFIX_OUTPUT_FORMAT")]
    assert plain["output-format"] == [("<none>", "default")]
    selected = shown("--select", "DF1", "--no-cache")
    assert selected["select"] == [('["DF1"]', "--select")]
    assert selected["ignore"] == [("[]", "default")]
    assert selected["cache-dir"] == [("<none>", "--no-cache")]


def test_config_as_json(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "devicefix.toml"
    file.write_text("\njobs = 2\n")
    settings = json.loads(cli("config", "--output-format", "json", "--path", "sub").stdout)
    assert [each["key"] for each in settings] == list(KEYS)
    assert next(each for each in settings if each["origin"] == "file") == {
        "key": "jobs", "value": 2, "origin": "file", "file": str(file), "line": 2,
    }  # fmt: skip
    key = json.loads(cli("config", "jobs", "--output-format", "json").stdout)
    assert (key["name"], key["type"], key["example"]) == ("jobs", "int", "jobs = 4")


def test_config_explains_a_key(cli: Cli) -> None:
    for key in KEYS.values():
        shown = cli("config", key.name).stdout
        assert shown.startswith(f"# {key.name}\n\n{key.summary}\n")
        for part in (key.details, key.type, key.default, key.example):
            assert part in shown
    done = cli("config", "per-file-ignore")
    assert done.exit_code == 2
    assert "unknown key 'per-file-ignore'; did you mean 'per-file-ignores'?" in done.stderr


def test_config_reports_what_is_wrong(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "devicefix.toml").write_text('jobs = 2\ntorch-version = "new"\n')
    done = cli("config")
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        done.stderr
        == f'Error: {tmp_path / "devicefix.toml"}:2:1: torch-version: must be a version such as "2.6"\n'
    )
