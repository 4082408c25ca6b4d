"""MkDocs hooks: generate pages, and name releases where there are some.

The pages are those for the rules, the counterparts of torch.cuda, the configuration and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from itertools import groupby
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from devicefix.cli import COMMANDS, main
from devicefix.config.settings import KEYS
from devicefix.config.version import __version__
from devicefix.devices.counterparts import (
    DEVICES,
    FUNCTIONS,
    NEWEST,
    SOURCES,
    TARGETS,
    Function,
    Support,
    Target,
    written,
)  # fmt: skip
from devicefix.rules.base import Example, Rule, invalid, valid
from devicefix.rules.categories import category
from devicefix.rules.registry import RULES

# What the pages name before there is a release, and what afterwards; pyproject.toml has it for README.md.
RELEASED = (
    (r" @ git\+https://github\.com/devicefix/devicefix\b", ""),
    (r"pip install git\+https://github\.com/devicefix/devicefix\b", "pip install devicefix"),
    (r"devicefix/devicefix@main\b", f"devicefix/devicefix@v{__version__}"),
    (r"rev: main\b.*", f"rev: v{__version__}"),
    (r"There is no release on PyPI yet; this installs the latest commit\.\s*", ""),
)


def on_page_markdown(markdown: str, config: MkDocsConfig, **_: Any) -> str:
    """Return the text of a page, which names releases if `published` is set in mkdocs.yml."""
    return released(markdown) if config.extra["published"] else markdown


def released(text: str) -> str:
    """Return a text as it is to be read when there is a release."""
    for pattern, replacement in RELEASED:
        text = re.sub(pattern, replacement, text)
    return text


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages (https://www.mkdocs.org/user-guide/configuration/#hooks)."""
    for path, content in pages():
        files.append(File.generated(config, path, content=content))
    return files


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the content of each generated page."""
    yield "rules/index.md", index()
    for rule in RULES.values():
        yield f"rules/{rule.code}.md", page(rule)
    yield "counterparts.md", counterparts()
    yield "configuration.md", configuration()
    yield "commands.md", commands()


def index() -> str:
    """Return the page that lists the rules by category."""
    lines = ["# Rules", "", "`devicefix rule DF101` prints the page of a rule.", ""]
    previous = None
    for code, rule in RULES.items():
        if (current := category(code)) != previous:
            lines += ["", f"## {current.name} ({current.prefix})", "", current.summary, ""]
            lines += ["| Code | Name | Finds | Fix | |", "| --- | --- | --- | --- | --- |"]
            previous = current
        summary = rule.summary.replace("|", "\\|")
        lines.append(f"| [{code}]({code}.md) | {rule.name} | {summary} | {fixes(rule)} | {when(rule)} |")
    return "\n".join(lines) + "\n"


def fixes(rule: type[Rule]) -> str:
    """Return the kinds of fixes that a rule has, according to its examples."""
    kinds = {"unsafe" if each.unsafe else "safe" for each in invalid(rule) if each.after is not None}
    return " and ".join(sorted(kinds)) or "none"


def when(rule: type[Rule]) -> str:
    """Return when a rule is enabled, empty if it always is."""
    if "cuda" not in rule.targets:
        return "with `--target accelerator`"
    return "" if rule.default else "off by default"


def page(rule: type[Rule]) -> str:
    """Return the page of a rule: its documentation and its examples."""
    notes = [f"Category: {category(rule.code).name}", f"Fix: {fixes(rule)}", when(rule)]
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


COUNTERPARTS = """\
# Counterparts of torch.cuda

This page lists what there is for the functions and classes of `torch.cuda` on other devices, from torch 2.4
to {newest}. [`--target accelerator`](guide/accelerator.md) replaces those that are the *same*.

- **Counterpart**: what replaces the function for any accelerator, and the first torch that has it.
- **On a CPU**: what the function, and then its counterpart, does in a CPU build of torch: the value,
  *object*, *raises* or *?* (unknown).
- **CUDA**: *same* if the counterpart does the same on a machine with CUDA; *adapted* if its arguments or its
  result differ.
- **XPU** to **MUSA**: the first torch in which the counterpart works on this device. Then the first torch in
  which the module of the device, such as `torch.xpu`, has a function of the same name. `torch_npu` and
  `torch_musa` number their releases after torch. *yes* means that the release is unknown, *–* that there is
  nothing, and *?* that nothing is known.

"""
HEADER = (
    "`torch.cuda`",
    "Counterpart",
    "On a CPU",
    "CUDA",
    *(device.upper() for device in DEVICES),
    "Source",
)


def counterparts() -> str:
    """Return the page that lists the functions of torch.cuda and their counterparts, by subject."""
    parts = [COUNTERPARTS.format(newest=written(NEWEST))]
    for subject, group in groupby(FUNCTIONS.values(), lambda each: each.subject):
        functions = list(group)
        parts += [f"## {subject}\n\n", *table_rows(map(function_row, functions)), "\n"]
        parts += [f"- `{name}`: {note}\n" for name, note in dict(notes(functions)).items()]
        parts.append("\n")
    used = {each.counterpart.name for each in FUNCTIONS.values() if each.counterpart}
    others = [each for name, each in TARGETS.items() if name not in used]
    rows = (
        ["", target(each), result(each.without), "", *map(cell, each.devices.values()), each.source]
        for each in others
    )
    parts += ["## Others\n\n", *table_rows(rows), "\n"]
    parts += [f"- `torch.{each.name}`: {each.note}\n" for each in others if each.note]
    parts += ["\n## Sources\n\n", *(f"- *{name}*: {text}\n" for name, text in SOURCES.items())]
    return "".join(parts)


def table_rows(rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines of the table of counterparts."""
    for row in (HEADER, ["---"] * len(HEADER), *rows):
        yield f"| {' | '.join(row)} |\n"


def target_row(each: Target) -> list[str]:
    """Return the row of a function for any accelerator that is not like one of torch.cuda."""
    return ["", target(each), result(each.without), "", *map(cell, each.devices.values()), each.source]


def function_row(function: Function) -> list[str]:
    """Return the row of a function of torch.cuda."""
    limits = (("from", function.since), ("to", function.until))
    name = " ".join([f"`{function.name}`", *(f"{word} {written(limit)}" for word, limit in limits if limit)])
    counterpart = function.counterpart
    if counterpart is None:
        return [name, "–", result(function.without), "–", *(module(function, each) for each in DEVICES), ""]
    other = TARGETS[counterpart.name]
    cells = (both(cell(other.devices[each]), module(function, each)) for each in DEVICES)
    results = f"{result(function.without)}, {result(other.without)}"
    return [name, target(other, counterpart.since), results, counterpart.how, *cells, other.source]


def target(each: Target, since: tuple[int, int] | None = None) -> str:
    """Return the name of a counterpart and its first release."""
    return f"`torch.{each.name}` {written(since or each.since)}"


def module(function: Function, device: str) -> str:
    """Return the cell of a device's own function."""
    support = function.devices[device]
    return f"`torch.{device}` {cell(support)}" if support.how in ("same", "adapted") else cell(support)


def both(counterpart: str, module: str) -> str:
    """Return the cell of a device for a counterpart and the device's own function."""
    return counterpart if module in ("–", "?") else f"{counterpart}, {module}"


def cell(support: Support) -> str:
    """Return the cell of a device."""
    if support.how == "same":
        return written(support.since) if support.since else "yes"
    return {"none": "–", "unknown": "?"}.get(support.how, str(support))


def result(code: str) -> str:
    """Return what a call does: a value as code, another result as a word."""
    words = {"raises": "raises", "object": "object", "unknown": "?"}
    return words.get(code, f"`{code}`")


def notes(functions: list[Function]) -> Iterator[tuple[str, str]]:
    """Yield the notes on functions and their counterparts, each with the name that it is about."""
    for each in functions:
        if each.note:
            yield f"torch.cuda.{each.name}", each.note
        other = TARGETS[each.counterpart.name] if each.counterpart else None
        if other is not None and other.note:
            yield f"torch.{other.name}", other.note


def configuration() -> str:
    """Return the page that describes the keys of the configuration."""
    parts = [
        "# Configuration keys\n\nThe keys of `devicefix.toml`, `.devicefix.toml`, and `[tool.devicefix]` in"
        " `pyproject.toml`. [Configure devicefix](configure.md) explains which file applies.\n"
    ]
    for key in KEYS.values():
        parts.append(f"## {key.name}\n\n{key.summary}\n\n{key.details}\n")
        parts.append(f"- Type: `{key.type}`\n- Default: `{key.default}`\n")
        parts.append(f"```toml\n{key.example}\n```\n")
    return "\n".join(parts)


def commands() -> str:
    """Return the page with the `--help` of each command."""
    parts = ["# Command line\n"]
    context = click.Context(main, info_name="devicefix")
    for name in sorted(COMMANDS):
        command: Any = main.get_command(context, name)
        subcontext = click.Context(command, info_name=name, parent=context, terminal_width=80)
        parts.append(f"## {name}\n\n```text\n{command.get_help(subcontext)}\n```\n")
    return "\n".join(parts)
