"""The settings and where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from devicefix.config import ConfigError, Settings, find, load

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
    assert load(Settings(), file) == Settings(
        select=("DF9",),
        ignore=("DF901",),
        exclude=("gen/",),
        root=tmp_path,
        unsafe_fixes=True,
        jobs=3,
        verbose=True,
        quiet=True,
    )


def test_what_the_file_does_not_say_stays(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.devicefix]\njobs = 3\n")
    assert load(Settings(select=CODES), tmp_path / "pyproject.toml").select == CODES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.devicefix]\nselekt = []\n", "has no key 'selekt'; did you mean 'select'?"),
        (
            "[tool.devicefix]\nunsafe_fixes = true\n",
            "has no key 'unsafe_fixes'; did you mean 'unsafe-fixes'?",
        ),
        ("[tool.devicefix]\nzzz = 1\n", "has no key 'zzz'"),
        ('[tool.devicefix]\nselect = "DF9"\n', "select: must be a list of strings"),
        ("[tool.devicefix]\nexclude = [1]\n", "exclude: must be a list of strings"),
        ('[tool.devicefix]\nselect = ["DF999"]\n', "select: no rule has the code 'DF999'"),
        ("[tool.devicefix]\nunsafe-fixes = 1\n", "unsafe-fixes: must be true or false"),
        ("[tool.devicefix]\njobs = 0\n", "jobs: must be a whole number from 1"),
        ("[tool.devicefix]\njobs = true\n", "jobs: must be a whole number from 1"),
        ("[tool]\ndevicefix = 1\n", "[tool.devicefix] must be a table"),
        ("[tool.devicefix\n", "line 1"),
        ("# \xff\n[tool.devicefix]\n", "codec can't decode"),
    ],
)
def test_mistakes_are_told_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load(Settings(), file)
    assert str(caught.value).startswith(f"{file}: ")
    assert words in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(Settings(), tmp_path / "pyproject.toml")


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
    settings = load(Settings(), file)
    assert (settings.target, settings.torch_version) == ("accelerator", (2, 10))


@pytest.mark.parametrize("line", ['target = "tpu"', "torch-version = 2.10", 'torch-version = "new"'])
def test_a_wrong_target_or_version_is_an_error(tmp_path: Path, line: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[tool.devicefix]\n{line}\n")
    with pytest.raises(ConfigError, match=line.partition(" ")[0]):
        load(Settings(), file)
