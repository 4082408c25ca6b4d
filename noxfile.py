"""Tasks for contributors: `nox --list` lists them, `nox -s lint types` runs two of them."""

from __future__ import annotations

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]

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
    session.install("-e", ".[dev]")
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
