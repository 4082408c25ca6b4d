"""The pages that come from the code: one for each rule, the configuration, the command line."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from devicefix.cli import COMMANDS, main
from devicefix.config.keys import KEYS
from devicefix.rules.base import Example, Rule, invalid, valid
from devicefix.rules.categories import family
from devicefix.rules.registry import RULES


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages (https://www.mkdocs.org/user-guide/configuration/#hooks)."""
    for path, content in pages():
        files.append(File.generated(config, path, content=content))
    return files


def pages() -> Iterator[tuple[str, str]]:
    """The paths and contents of the generated pages."""
    yield "rules/index.md", index()
    for rule in RULES.values():
        yield f"rules/{rule.code}.md", page(rule)
    yield "configuration.md", configuration()
    yield "commands.md", commands()


def index() -> str:
    """The list of the rules, by family."""
    lines = ["# Rules", "", "`devicefix explain DF101` prints the page of a rule.", ""]
    before = None
    for code, rule in RULES.items():
        if (now := family(code)) != before:
            lines += ["", f"## {now.name} ({now.prefix})", "", now.summary, ""]
            lines += ["| Code | Name | Finds | Fix | |", "| --- | --- | --- | --- | --- |"]
            before = now
        summary = rule.summary.replace("|", "\\|")
        lines.append(f"| [{code}]({code}.md) | {rule.name} | {summary} | {fixes(rule)} | {when(rule)} |")
    return "\n".join(lines) + "\n"


def fixes(rule: type[Rule]) -> str:
    """Which fixes a rule has, by its examples."""
    kinds = {"unsafe" if each.unsafe else "safe" for each in invalid(rule) if each.after is not None}
    return " and ".join(sorted(kinds)) or "none"


def when(rule: type[Rule]) -> str:
    """When a rule is on, where it isn't always."""
    if "cuda" not in rule.targets:
        return "with `--target accelerator`"
    return "" if rule.default else "off by default"


def page(rule: type[Rule]) -> str:
    """The page of a rule: its documentation, and its examples."""
    notes = [f"Family: {family(rule.code).name}", f"Fix: {fixes(rule)}", when(rule)]
    text = f"# {rule.name} ({rule.code})\n\n{rule.summary}.\n\n{' · '.join(filter(None, notes))}\n\n"
    text += f"{cleandoc(rule.__doc__ or '')}\n\n## Examples\n\n"
    text += "".join(reported(each) for each in invalid(rule))
    if valid(rule):
        text += "## Left alone\n\n" + "".join(left(each) for each in valid(rule))
    return text


def reported(example: Example) -> str:
    """Return an example under its name: the diff of the rewrite, or the code if it is only reported."""
    from difflib import ndiff

    title = f"### {sentence(example.name)}\n\n"
    if example.after is None:
        return f"{title}Reported:\n\n```python\n{example.before}```\n\n"
    before, after = example.before.splitlines(keepends=True), example.after.splitlines(keepends=True)
    diff = "".join(line for line in ndiff(before, after) if not line.startswith("?"))
    how = "With `--unsafe-fixes`" if example.unsafe else "Rewritten"
    return f"{title}{how}:\n\n```diff\n{diff}```\n\n"


def left(example: Example) -> str:
    """Return an example that a rule leaves alone, under its name."""
    return f"### {sentence(example.name)}\n\n```python\n{example.before}```\n\n"


def sentence(text: str) -> str:
    """Return a text with a capital letter at its start."""
    return text[:1].upper() + text[1:]


def configuration() -> str:
    """The keys of the configuration."""
    parts = [
        "# Configuration\n\nSettings stand in the nearest `devicefix.toml`, or in `[tool.devicefix]` of the"
        " nearest `pyproject.toml`. An option of the command line takes the place of the key with its name;"
        " `devicefix config` shows what is in force and where it came from.\n"
    ]
    for key in KEYS.values():
        parts.append(f"## {key.name}\n\n{key.summary}\n\n{key.details}\n")
        parts.append(f"- Type: `{key.type}`\n- Default: `{key.default}`\n")
        parts.append(f"```toml\n{key.example}\n```\n")
    return "\n".join(parts)


def commands() -> str:
    """The commands, each with what its `--help` says."""
    parts = ["# Command line\n"]
    context = click.Context(main, info_name="devicefix")
    for name in sorted(COMMANDS):
        command: Any = main.get_command(context, name)
        inner = click.Context(command, info_name=name, parent=context, terminal_width=80)
        parts.append(f"## {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    return "\n".join(parts)
