"""The migration report as one self-contained HTML page.

File names and code are not trusted. Every value is escaped, invisible characters and those that change the
direction of text are shown as escapes, and the Content-Security-Policy allows only the page's own script and
style, and no requests.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from devicefix.config.printable import printable
from devicefix.config.version import __version__
from devicefix.files.discover import root_of
from devicefix.report.checked import Checked
from devicefix.report.environment import environment
from devicefix.report.migration import NO_OWNER, About, Migration
from devicefix.report.migration import migration as figures
from devicefix.report.migration_ties import KINDS, LEFT, SAFE, UNSAFE

TEMPLATE, STYLE, SCRIPT = "report.html.jinja", "report.css", "report.js"

_CODE = re.compile(r"`([^`]+)`")


def render(checked: Checked) -> Iterator[str]:
    """Yield the page of a check, which nothing is known about but its findings."""
    yield html(figures(checked, root=root_of(Path())), About(Path.cwd().name))


def html(migration: Migration, about: About) -> str:
    """Return the page.

    Args:
        migration: the figures to show.
        about: the page's own title and origin.
    """
    templates = environment(_escaped, markdown=_markdown, coded=_coded, printable=printable)
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    style, script = (_asset(templates, name) for name in (STYLE, SCRIPT))
    page = templates.get_template(TEMPLATE).render(
        migration=migration,
        about=about,
        version=__version__,
        kinds=KINDS,
        safe=SAFE,
        unsafe=UNSAFE,
        left=LEFT,
        no_owner=NO_OWNER,
        style=style,
        script=script,
        allowed=f"style-src {_hash(style)}; script-src {_hash(script)}; img-src data:",
    )
    return page.lstrip()  # the macros leave blank lines


def _asset(templates: Environment, name: str) -> Markup:
    """Return a file from the folder of the templates, to include unescaped."""
    assert templates.loader is not None
    return Markup(templates.loader.get_source(templates, name)[0])


def _hash(text: str) -> str:
    """Return the Content-Security-Policy source that allows one inline script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _escaped(value: object) -> object:
    """Return a value for the page, with the invisible characters of untrusted text escaped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _markdown(text: str) -> Markup:
    """Return Markdown as HTML; HTML inside the Markdown is shown as text."""
    return Markup(MarkdownIt("js-default").render(text))


def _coded(text: str) -> Markup:
    """Return a message as HTML, in which only text in backticks has a meaning: it is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(printable(text)))))
