"""Patterns of files: what they match, compared with git and regular expressions, and which are refused."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import Cli, Git
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from devicefix.config import globs, ignore
from devicefix.config.globs import LONGEST, MOST
from devicefix.files import discover

HOSTILE = "*a" * 100 + "*b"
LONG = "a" * 250
SECONDS = 3.0  # generous, for a busy machine
TIED = "import torch\n\nx = torch.ones(2).cuda()\n"

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


# -- meaning -------------------------------------------------------------------------------------------


def parts(*words: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=4).map("/".join)


lines = st.tuples(
    st.sampled_from(["", "", "!", "/"]),
    parts("a", "b", "*", "**", "?", "[ab]", "[!a]", "[^b-z]", "\\*", "a*b", "**a", "*.py", "!", "#", "[]a]"),
    st.sampled_from(["", "/", " ", "\\ "]),
).map("".join)
paths = parts("a", "b", "ab", "aab", "x.py", "*", "a ", "!", "#", "]")


@quick
@given(st.lists(lines, min_size=1, max_size=4), st.lists(paths, min_size=1, max_size=8, unique=True))
def test_exclusions_are_those_of_git(tmp_path: Path, patterns: list[str], files: list[str]) -> None:
    if not (tmp_path / ".git").exists():
        Git(tmp_path)("init", "-q")
    (tmp_path / ".gitignore").write_text("\n".join(patterns))
    found = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=tmp_path,
        input="\0".join(files),
        stdout=subprocess.PIPE,
        text=True,
        check=False,  # 1 if nothing is ignored
    )
    ignored = set(found.stdout.split("\0")) - {""}
    try:
        excluded = ignore.Ignore(tuple(patterns))
    except ValueError:  # such as "!"
        reject()
    assert {file for file in files if excluded.excludes(file, False)} == ignored


# Globs, each with the regular expression that means the same.
ATOMS = [
    ("a", "a"),
    (".", r"\."),
    ("/", "/"),
    ("*", ".*"),
    ("?", "."),
    ("[ab]", "[ab]"),
    ("[!a-c]", "[^a-c]"),
]
Pair = tuple[str, str]


def one_after_the_other(pairs: list[Pair]) -> Pair:
    return "".join(glob for glob, _ in pairs), "".join(regex for _, regex in pairs)


def alternatives(pairs: list[Pair]) -> Pair:
    globs, regexes = zip(*pairs, strict=True)
    return "{" + ",".join(globs) + "}", f"(?:{'|'.join(regexes)})"


pairs = st.recursive(
    st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4).map(one_after_the_other),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(alternatives)
        | st.lists(inner, min_size=2, max_size=3).map(one_after_the_other)
    ),
)


@quick
@given(pairs, st.lists(st.text("ab./", max_size=8)))
def test_globs_are_as_regular_expressions(pair: Pair, names: list[str]) -> None:
    glob, regex = pair
    assume("**/" not in glob)  # which is more than its stars
    try:
        globs.check([glob])
    except ValueError:  # too many alternatives
        reject()
    found = [name for name in names if globs._regex(glob).match(name)]
    assert found == [name for name in names if re.fullmatch(regex, name)]


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        (r"\*", "*", True), (r"\*", "a", False), (r"\{a\}", "{a}", True), (r"{a\,b,c}", "a,b", True),
        ("[a", "[a", True), ("a{[,x}b", "a[b", True), ("[z-a]", "b", False), ("[{]", "{", True),
        ("[^a]", "b", True), ("[^a]", "a", False), ("[]a]", "]", True), ("a\\", "a\\", True),
    ],
)  # fmt: skip
def test_special_characters_in_globs(glob: str, name: str, matches: bool) -> None:
    globs.check([glob])
    assert bool(globs.off(f"/{name}", ((glob, ("DF1",), Path("/")),))) is matches


@pytest.mark.parametrize(
    ("check", "pattern", "words"),
    [
        (globs.check, "", "a pattern must not be empty"),
        (globs.check, "!", "a pattern must not be empty"),
        (globs.check, "{a", "the braces in a pattern must be balanced"),
        (globs.check, "a}", "the braces in a pattern must be balanced"),
        (globs.check, "{,}" * 300, "at most 1,000 patterns"),
        (globs.check, "a" * (LONGEST + 1), "a pattern may have at most 1,000 characters"),
        (ignore.check, "!", "this is not a valid .gitignore pattern"),
        (ignore.check, "a\\", "this is not a valid .gitignore pattern"),
        (ignore.check, "[z-a]", "this is not a valid .gitignore pattern"),
        (ignore.check, "a" * (LONGEST + 1), "a pattern may have at most 1,000 characters"),
    ],
)
def test_patterns_that_are_refused(check: Callable[[list[str]], None], pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(pattern[:60])) + f".*{re.escape(words)}"):
        check(["*.py", pattern])


@pytest.mark.parametrize("check", [globs.check, ignore.check])
def test_the_number_of_patterns_is_limited(check: Callable[[list[str]], None]) -> None:
    patterns = [f"a{number}" for number in range(MOST + 1)]
    check(patterns[:-1])
    with pytest.raises(ValueError, match=f"'a{MOST}': at most 1,000 patterns"):
        check(patterns)


def test_patterns_that_exclude_nothing() -> None:
    """As in git, an open bracket is one of them."""
    excluded = ignore.Ignore(("", "#a", "/", "  ", "[a"))
    assert not any(excluded.excludes(name, True) for name in ("a", "#a", "[a"))


@pytest.mark.parametrize(
    ("patterns", "folder", "excluded"),
    [
        (("a/b", "!a/"), "a/b", True),
        (("b", "!a"), "a/b", True),  # the second one matches only `a`
        (("a", "!a/b"), "a/b", True),  # nothing below an excluded folder is included again
        (("b/", "!a/b/"), "a/b", False),
        (("./a/",), "b/a", False),
    ],
)
def test_folders(patterns: tuple[str, ...], folder: str, excluded: bool) -> None:
    found = ignore.Ignore(patterns)
    assert found.excludes(folder, True) is excluded
    assert found.excludes(f"{folder}/c/d", False) is excluded


# -- configurations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("per-file-ignores = { '*a*b' = ['DF1'], '%s' = ['DF1'] }", "per-file-ignores: "),
        ("exclude = ['*a*b', '%s']", "exclude: "),
        ("extend-exclude = ['*a*b', '%s']", "extend-exclude: "),
    ],
)
def test_a_refused_pattern_is_an_error_with_its_place(
    cli: Cli, tmp_path: Path, setting: str, words: str
) -> None:
    (tmp_path / "devicefix.toml").write_text(f"quiet = true\n{setting % ('x' * (MOST + 1))}\n")
    done = cli("check", ".")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {tmp_path / 'devicefix.toml'}:2:1: {words}'xxx")
    assert done.stderr.endswith("': a pattern may have at most 1,000 characters\n")


def test_stars_against_a_long_name() -> None:
    """With a regular expression that tries every length of every star, it takes years."""
    started = time.process_time()
    ignores = ((HOSTILE, ("DF1",), Path("/")), ("**/a/" * 8 + "b", ("DF1",), Path("/")))
    assert not any(globs.off(f"/{LONG}{number}", ignores) for number in range(1000))
    assert time.process_time() - started < SECONDS


@pytest.mark.skipif(os.name == "nt", reason="a script is no program there")
def test_git_does_not_take_forever_for_a_gitignore(
    cli: Cli, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions of git do for many stars; this one takes its time for anything."""
    git("init", "-q")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    (tmp_path / "a.py").write_text(TIED)
    (tmp_path / "ignored.py").write_text(TIED)
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(discover, "GIT_SECONDS", 1.0)
    done = cli("check", "--no-cache", ".")
    assert done.stderr == ".: warning: git took more than 1 s; the patterns in .gitignore are not applied\n"
    assert done.stdout.count("DF101") == 2
