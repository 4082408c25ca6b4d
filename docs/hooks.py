"""MkDocs hooks: generate pages, let links lead to them, and name releases where there are some.

The pages are those for the rules, the counterparts of torch.cuda, the configuration and the command line.
GitHub shows only the sources of these pages, so other pages link to the sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from functools import cache
from inspect import cleandoc, getfile
from itertools import groupby
from pathlib import Path
from posixpath import join, normpath
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

import devicefix
from devicefix.cli import COMMANDS, main
from devicefix.config.settings import KEYS
from devicefix.config.version import __version__
from devicefix.devices.counterparts import (
    DEVICES,
    FUNCTIONS,
    NEWEST,
    RAISES,
    TARGETS,
    Function,
    Support,
    Target,
    written,
)  # fmt: skip
from devicefix.rules.base import Rule
from devicefix.rules.categories import category
from devicefix.rules.pages import fixes
from devicefix.rules.registry import RULES

STAR = r"\*"
WORKS = ("same", "adapted")
GITHUB = "https://github.com/devicefix/devicefix"
ROOT = Path(devicefix.__file__).parents[1]

# What the pages name before there is a release, and what afterwards; pyproject.toml has it for README.md.
RELEASED = (
    (r" @ git\+https://github\.com/devicefix/devicefix\b", ""),
    (r"install git\+https://github\.com/devicefix/devicefix\b", "install devicefix"),
    (r"devicefix/devicefix@main\b", f"devicefix/devicefix@v{__version__}"),
    (r"rev: main\b.*", f"rev: v{__version__}"),
    (
        r"(It|devicefix) isn't\s+on\s+PyPI\s+yet,\s+so\s+install\s+the\s+latest\s+commit\s+from\s+GitHub\b",
        r"Install it",
    ),
)


# The two sections of a rule's page that become one diff, if each is a block of code.
CHANGE = re.compile(
    r"^## Example\n```(\w+)\n(?P<before>[^`]*)```\n\n## Use instead\n```\1\n(?P<after>[^`]*)```\n", re.M
)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Return the text of a page, which names releases if `published` is set in mkdocs.yml."""
    text = linked(markdown, page.file.src_uri)
    return released(text) if config.extra["published"] else text


def linked(text: str, name: str) -> str:
    """Let the links that leave docs/ lead to the pages generated from these files, or to GitHub.

    Args:
        text: the text of the page.
        name: its path in docs/.

    Returns:
        The text with other links.
    """

    def link(found: re.Match[str]) -> str:
        target = normpath(join("docs", name, "..", found[1]))
        if target.startswith("docs/"):
            return found[0]
        generated = sources().get(target)
        address = get_relative_url(generated, name) if generated else github_address(target)
        return f"]({address})"

    return re.sub(r"\]\((\.\./[^)\s]+)\)", link, text)


@cache
def sources() -> dict[str, str]:
    """Return the generated pages that others link to, by what they link to on GitHub."""
    return {
        "README.md#rules": "rules/index.md",
        "devicefix/config/keys.toml": "configuration.md",
        "devicefix/devices/counterparts.toml": "counterparts.md",
        **{source(rule): f"rules/{rule.code}.md" for rule in RULES.values()},
    }


def github_address(path: str) -> str:
    """Return the address of a file or a folder of the repository, which may have an anchor."""
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{GITHUB}/{kind}/main/{path}"


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
    lines = ["# Rules", "", "`devicefix rule DF101` prints a rule's page.", ""]
    for name, rules in groupby(RULES.values(), lambda rule: category(rule.code)):
        lines += [f"## {name.name} ({name.prefix})", "", "| Rule | Finds | Fix |", "| --- | --- | --- |"]
        lines += [*map(row, rules), ""]
    return "\n".join(lines)


def row(rule: type[Rule]) -> str:
    """Return the row of a rule in the list."""
    fix = " · ".join(filter(None, [", ".join(fixes(rule)) or "none", when(rule)]))
    summary = rule.summary.replace("|", r"\|")
    return f"| [{rule.code}]({rule.code}.md) {rule.name} | {summary} | {fix} |"


def when(rule: type[Rule]) -> str:
    """Return when a rule is enabled, empty if it always is."""
    if "cuda" not in rule.targets:
        return "with `--target accelerator`"
    return "" if rule.default else "off by default"


def page(rule: type[Rule]) -> str:
    """Return the page of a rule: its documentation, with one example, and where the others are."""
    notes = " · ".join(filter(None, [f"Fix: {', '.join(fixes(rule)) or 'none'}", when(rule)]))
    text = CHANGE.sub(change, cleandoc(rule.__doc__ or ""))
    more = f"\n[More examples]({github_address(source(rule))})\n" if rule.INVALID or rule.VALID else ""
    return f"# {rule.name} ({rule.code})\n\n{notes}\n\n{text}\n{more}"


def change(found: re.Match[str]) -> str:
    """Return the two blocks of an example as one diff."""
    before, after = (found[name].splitlines(keepends=True) for name in ("before", "after"))
    _, _, _, *lines = unified_diff(before, after, n=len(before))
    return f"## Example\n```diff\n{''.join(lines)}```\n"


def source(rule: type[Rule]) -> str:
    """Return the path of the file with a rule's examples, or of the rule's folder if it has one."""
    path = Path(getfile(rule)).relative_to(ROOT)
    return (path if path.parent.name == "rules" else path.parent).as_posix()


COUNTERPARTS = """\
# Counterparts of torch.cuda

This page lists the replacements for `torch.cuda` on other accelerators, from torch 2.4 to {newest}. Other
functions have no known counterpart. [`--target accelerator`](guide/accelerator.md) uses only counterparts
that have the same effect as the CUDA function.

- *2.6/2.4* means that the counterpart works on the device from torch 2.6 on, and that the device's module,
  such as `torch.xpu`, has a function of the same name from 2.4 on. *–* means that there is no counterpart,
  *?* that this is unknown, and an empty cell that there is neither a counterpart nor a function of that
  name. `torch_npu` and `torch_musa` use torch's version numbers.
- \\* means that the arguments or the result differ from those on CUDA.
- In a CPU build, all `torch.accelerator` functions except {harmless} raise an error.
- For HPU, see [below](#hpu).

"""
COLUMNS = tuple(device for device in DEVICES if device != "hpu")
HEADER = ("`torch.cuda`", "Counterpart", *(device.upper() for device in COLUMNS))


def counterparts() -> str:
    """Return the page that lists the functions of torch.cuda and their counterparts, by subject."""
    parts = [COUNTERPARTS.format(newest=written(NEWEST), harmless=_listed(harmless()))]
    for subject, group in groupby(FUNCTIONS.values(), lambda each: each.subject):
        functions = list(group)
        parts += [f"## {subject}\n\n", *table(functions), "\n", *notes(functions), "\n"]
    others = list(unlike_cuda())
    rows = (["", target(each), *(cell(each.devices[device]) for device in COLUMNS)] for each in others)
    parts += ["## Others\n\n", *table_rows(rows), "\n"]
    parts += [f"- `torch.{each.name}`: {each.note}\n" for each in others if each.note]
    works, in_module = known_of_hpu(TARGETS, "torch."), known_of_hpu(FUNCTIONS)
    parts.append(
        f"\n## HPU\n\n{works} works, and `torch.hpu` has {in_module}. Support for others is unknown.\n"
    )
    parts.append(f"\n[Sources]({github_address('devicefix/devices/counterparts.toml')})\n")
    return "".join(parts)


def unlike_cuda() -> Iterator[Target]:
    """Yield the functions that are not like one of torch.cuda, unless they are deprecated."""
    used = {each.counterpart.name for each in FUNCTIONS.values() if each.counterpart}
    for name, each in TARGETS.items():
        if name not in used and not each.note.startswith("Deprecated"):
            yield each


def known_of_hpu(known: Mapping[str, Function] | Mapping[str, Target], prefix: str = "") -> str:
    """Return the names of the functions that work on HPU."""
    return _listed(f"`{prefix}{name}`" for name, each in known.items() if each.devices["hpu"].how in WORKS)


def _listed(names: Iterable[str]) -> str:
    """Return names as a list in a sentence, such as `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def harmless() -> Iterator[str]:
    """Yield the functions of torch.accelerator that raise no error in a CPU build."""
    for name, each in TARGETS.items():
        if name.startswith("accelerator.") and each.without != RAISES:
            yield f"`{name.removeprefix('accelerator.')}`"


def table(functions: list[Function]) -> Iterator[str]:
    """Yield the lines of the table of a subject, in which functions with the same cells share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for each in functions:
        rows.setdefault(cells(each), []).append(named(each))
    rows.pop(("",) * (len(COLUMNS) + 1), None)
    if rows:
        yield from table_rows([", ".join(names), *row] for row, names in rows.items())


def table_rows(rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines of a table of counterparts."""
    for each in (HEADER, ["---"] * len(HEADER), *rows):
        yield f"| {' | '.join(each)} |\n"


def cells(function: Function) -> tuple[str, ...]:
    """Return the counterpart of a function of torch.cuda, and what there is on each device."""
    counterpart = function.counterpart
    modules = [cell(function.devices[each]) for each in COLUMNS]
    if counterpart is None:
        return ("", *(module and f"–/{module}" for module in modules))
    other = TARGETS[counterpart.name]
    star = STAR if counterpart.how == "adapted" else ""
    works = [cell(other.devices[each]) for each in COLUMNS]
    pairs = zip(works, modules, strict=True)
    devices = (f"{work or '–'}/{module}" if module else work for work, module in pairs)
    return (target(other, counterpart.since) + star, *devices)


def named(function: Function) -> str:
    """Return the name of a function, with the releases that have it."""
    since = f" {written(function.since)}+" if function.since else ""
    until = f" to {written(function.until)}" if function.until else ""
    return f"`{function.name}`{since}{until}"


def target(each: Target, since: tuple[int, int] | None = None) -> str:
    """Return the name of a counterpart and its first release."""
    return f"`torch.{each.name}` {written(since or each.since)}"


def cell(support: Support) -> str:
    """Return the cell of a device."""
    if support.how not in WORKS:
        return {"none": ""}.get(support.how, "?")
    return (written(support.since) if support.since else "yes") + (STAR if support.how == "adapted" else "")


def notes(functions: list[Function]) -> Iterator[str]:
    """Yield the notes on functions and their counterparts, each with the names that it is about."""
    found: dict[str, dict[str, None]] = {}
    for each in functions:
        if each.note:
            found.setdefault(each.note, {})[f"`torch.cuda.{each.name}`"] = None
        other = TARGETS[each.counterpart.name] if each.counterpart else None
        if other is not None and other.note:
            found.setdefault(other.note, {})[f"`torch.{other.name}`"] = None
    for note, names in found.items():
        yield f"- {', '.join(names)}: {note}\n"


CONFIGURATION = """\
# Configuration keys

This page describes the keys of `devicefix.toml`, `.devicefix.toml`, and `[tool.devicefix]` in
`pyproject.toml`. [Configure devicefix](configure.md) explains which file applies. Each key except `extend`
is also an option, such as `--select`. The keys {additions} add to the configured values.
"""


def configuration() -> str:
    """Return the page that describes the keys of the configuration."""
    additions = [f"`{name}`" for name in KEYS if name.startswith("extend-")]
    *others, last = additions
    parts = [CONFIGURATION.format(additions=f"{', '.join(others)} and {last}")]
    for key in KEYS.values():
        if f"`{key.name}`" not in additions:
            stated = "(default: " in key.summary or key.default in ("[]", "{}", "none")
            default = "" if stated else f"Default: `{key.default}`."
            example = "" if key.type == "bool" else f"Example: `{key.example}`."
            parts.append(f"## {key.name}\n\n{key.summary} {key.details.strip()}\n\n{default} {example}\n")
    return "\n".join(parts)


COMMAND_LINE = """\
# Command line

Each command has its own options and some of the [shared options](#shared-options). `--help` lists the
most common options, and `--help-all` all options. PATHS are files or folders, or `-` for standard
input. The default is the current folder.

"""
PATHS = "PATHS are files or folders, or `-` for standard input. [default: the current folder]"
Options = list[tuple[str, str]]  # how each option is written, and its help


def commands() -> str:
    """Return the page of the commands: what each has of its own, then what several share."""
    found = {name: options_of(context_of(name)) for name in sorted(COMMANDS)}
    holders: dict[tuple[str, str], list[str]] = {}
    for name, options in sorted(found.items(), key=lambda item: item[0] == "config"):
        for option in options:
            if name != "config" or option not in holders:  # `config` has the options of the others
                holders.setdefault(option, []).append(f"`{name}`")
    parts = [COMMAND_LINE]
    for name, options in found.items():
        parts += command(context_of(name), [option for option in options if holders[option] == [f"`{name}`"]])
    parts.append("## Shared options\n\n")
    shared = sorted((names for names in holders.values() if len(names) > 1), key=len, reverse=True)
    for names in dict.fromkeys(map(tuple, shared)):
        parts += [
            f"{', '.join(names)}:\n\n",
            *listed([each for each in holders if tuple(holders[each]) == names]),
        ]
    return "".join(parts)


def command(context: click.Context, options: Options) -> Iterator[str]:
    """Yield the parts of a command's section, with its own options."""
    usage = " ".join(context.command.collect_usage_pieces(context))
    yield f"## {context.info_name}\n\n`devicefix {context.info_name} {usage}`\n\n"
    yield f"{cleandoc(context.command.help or '').replace(PATHS, '').strip()}\n\n"
    yield from listed(options)
    yield f"{cleandoc(context.command.epilog or '')}\n\n"


def context_of(name: str) -> click.Context:
    """Return the context of a command."""
    parent = click.Context(main, info_name="devicefix")
    found: Any = main.get_command(parent, name)
    return click.Context(found, info_name=name, parent=parent)


def options_of(context: click.Context) -> Options:
    """Return the options of a command."""
    options = (each for each in context.command.params if isinstance(each, click.Option))
    return [record for each in options if (record := each.get_help_record(context))]


def listed(options: Options) -> Iterator[str]:
    """Yield links to the options that are keys of the configuration, and a table of the others."""
    links, lines = [], []
    for names, text in options:
        key = next((key for key in KEYS.values() if f"--{key.name}" in names.split()), None)
        if key and text.startswith(key.summary):
            links.append(f"[`--{key.name}`](configuration.md#{key.name.removeprefix('extend-')})")
        else:
            lines.append(f"| `{names}` | {text} |\n")
    yield f"[Configuration keys](configuration.md): {', '.join(links)}.\n\n" if links else ""
    if lines:
        yield from ("| Option | Meaning |\n| --- | --- |\n", *lines, "\n")
