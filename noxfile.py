"""Tasks for contributors: `nox --list` lists them, `nox -s lint types` runs two of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]

# The releases of torch in the table of counterparts.
RELEASES = [f"2.{minor}.0" for minor in range(4, 16)]
# Those whose wheels are small.
PLATFORMS = [f"--platform=macosx_{major}_0_arm64" for major in (11, 12, 14)]

nox.options.sessions = ["lint", "types", "tests-small"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the fast tests with everything installed; arguments after `--` go to pytest."""
    session.install("-e", ".[dev]")
    session.run("pytest", *(session.posargs or ["-n", "auto"]))


@nox.session(name="tests-small", python=PYTHONS)
def tests_small(session: nox.Session) -> None:
    """Run the tests that need neither torch, a browser, mkdocs nor dask."""
    session.install("-e", ".[test]")
    session.run("pytest", *(session.posargs or ["-n", "auto"]))


@nox.session
def lint(session: nox.Session) -> None:
    """Check the code and its format."""
    session.install("ruff")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package, the tests and the benchmarks."""
    session.install("-e", ".[lint]")
    session.run("mypy", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; `nox -s docs -- serve` shows it and follows changes."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def corpus(session: nox.Session) -> None:
    """Run benchmarks/corpus.py: by default fetch the corpus, and compare the working tree with main."""
    session.install("-e", ".")
    commands = [session.posargs] if session.posargs else [["fetch"], ["compare", "main"], ["comments"]]
    for command in commands:
        session.run("python", "benchmarks/corpus.py", *command)


@nox.session
def facts(session: nox.Session) -> None:
    """Compare the table of counterparts with releases of torch: all, or `nox -s facts -- 2.6.0 2.9.0`.

    Of a release without a CPU build in the index, read the Python files of a wheel.
    """
    session.install("-e", ".[test]")
    for release in session.posargs or RELEASES:
        try:
            session.run("pip", "install", "--quiet", f"torch=={release}+cpu", silent=True)
            files = {}
        except nox.command.CommandFailed:
            files = {"TORCH_FILES": str(python_files(session, release))}
        session.run("pytest", "-q", "-rs", "tests/devices/test_counterparts.py", env=files)


def python_files(session: nox.Session, release: str) -> Path:
    """Return the folder `torch` with the Python files of a release's wheel."""
    folder = Path(session.create_tmp()).absolute() / release
    if not (folder / "torch").exists():
        options = ("--no-deps", "--only-binary=:all:", "--python-version=3.11", *PLATFORMS)
        session.run("pip", "download", "--quiet", f"torch=={release}", *options, "--dest", str(folder))
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])
        wheel.unlink()
    return folder / "torch"
