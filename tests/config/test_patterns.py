"""Patterns of files: what they match, compared with git and regular expressions, and the time they take."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import Cli, Git
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from devicefix.config import globs, ignore
from devicefix.config.patterns import MOST, Automaton
from devicefix.files import discover

HOSTILE = "*a" * 100 + "*b"
LONG = "a" * 250
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
    automaton = Automaton([globs._alternatives(glob)])
    found = [name for name in names if automaton.after(name, automaton.starts) & automaton.ends[0]]
    assert found == [name for name in names if re.fullmatch(regex, name)]


@pytest.mark.parametrize("glob", ["", "!", "{a", "a}", "[a", "[z-a]", "a{b,[c}"])
def test_wrong_globs_are_errors(glob: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(glob))):
        globs.check([glob])


@pytest.mark.parametrize("pattern", ["!", "[a", "[z-a]"])
def test_wrong_exclusions_are_errors(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(pattern))):
        ignore.check([pattern])


def test_comments_and_empty_lines_exclude_nothing() -> None:
    assert not any(ignore.Ignore(("", "#a", "/", "  ")).excludes(name, True) for name in ("a", "#a"))


# -- time ----------------------------------------------------------------------------------------------

SECONDS = 3.0  # generous, for a busy machine: what is tried in all ways takes years
AT_MOST = (
    pytest.param(["*a" * 2000 + "*b"], id="stars"),
    pytest.param(["**/a/" * 8 + "b"], id="any folders"),
    pytest.param(["*" + "?" * 40 + "b"] * 200, id="question marks"),
    pytest.param(["*" + "[!b-z]" * 40 + "b"] * 200, id="brackets"),
    pytest.param([f"*{number}" for number in range(1300)], id="many"),
    pytest.param(["".join(map(chr, range(1000, MOST)))], id="characters"),
)


@pytest.mark.parametrize("patterns", AT_MOST)
def test_a_thousand_long_names_take_little_time(patterns: list[str]) -> None:
    names = [f"{'a' * 240}{number}" for number in range(1000)]
    started = time.process_time()
    ignore.check(patterns)
    excluded = ignore.Ignore(tuple(patterns))
    found = sum(excluded.excludes(name, False) for name in names)
    assert time.process_time() - started < SECONDS
    assert found in (0, len(names))


@pytest.mark.parametrize("patterns", AT_MOST)
def test_a_thousand_long_names_take_little_time_in_per_file_ignores(patterns: list[str]) -> None:
    started = time.process_time()
    globs.check(patterns)
    ignores = tuple((pattern, ("DF1",), Path("/")) for pattern in patterns)
    for number in range(1000):
        globs.off(f"/{'a' * 240}{number}", ignores)
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize(
    "patterns",
    [
        [f"*a*b{number}*c" for number in range(50_000)],
        ["a" * (MOST + 1)],
        ["{a,b}" * 40],
        ["{,}" * 5000],
        ["{" * 200_000],
        ["[" * 200_000],
        ["a/" + "**/a/" * 100],
        [" " * 1_000_000 + "a"],
    ],
)
def test_more_is_refused_at_once(patterns: list[str]) -> None:
    started = time.process_time()
    for check in (globs.check, ignore.check):
        with suppress(ValueError):
            check(patterns)
    assert time.process_time() - started < SECONDS


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
    assert (
        "the patterns are too long: with all alternatives written out, at most 10,000 characters are allowed"
        in done.stderr
    )


def test_stars_against_a_long_name(cli: Cli, tmp_path: Path) -> None:
    """The attack as it was made: it took minutes."""
    (tmp_path / f"{LONG}.py").write_text(TIED)
    (tmp_path / "devicefix.toml").write_text(
        f"per-file-ignores = {{ '{HOSTILE}' = ['DF101'] }}\n"
        f"exclude = ['{HOSTILE}']\nextend-exclude = ['{HOSTILE}']\n"
    )
    started = time.process_time()
    done = cli("check", "--no-cache", ".")
    assert (done.exit_code, done.stdout.count("DF101")) == (1, 1), done.output
    assert time.process_time() - started < SECONDS


def test_git_does_not_take_forever_for_a_gitignore(
    cli: Cli, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "-q")
    (tmp_path / ".gitignore").write_text(f"{HOSTILE}\nignored.py\n")
    (tmp_path / f"{LONG}.py").write_text(TIED)
    (tmp_path / "ignored.py").write_text(TIED)
    monkeypatch.setattr(discover, "GIT_SECONDS", 1.0)
    done = cli("check", "--no-cache", ".")
    assert done.stderr == ".: warning: git took more than 1 s; the patterns in .gitignore are not applied\n"
    assert done.stdout.count("DF101") == 2
