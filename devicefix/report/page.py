"""The migration report as one HTML page that needs nothing but itself.

File names and code come from anywhere. Everything that is put into the page is escaped, what cannot be seen
or turns the direction of text around is shown as an escape, and the page's Content-Security-Policy lets
nothing run but the script that is part of it, and nothing be fetched.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from devicefix.config.version import __version__
from devicefix.report.concise import printable
from devicefix.report.migration import KINDS, LEFT, SAFE, UNSAFE, Migration

TEMPLATE, STYLE, SCRIPT = "report.html.jinja", "report.css", "report.js"

_CODE = re.compile(r"`([^`]+)`")


class About(NamedTuple):
    """What the page says of itself: a title, the revision of the code, and when it was made, if known."""

    title: str
    revision: str = ""
    made: str = ""


def html(migration: Migration, about: About) -> str:
    """The page.

    Args:
        migration: what there is to show.
        about: what to call it.
    """
    environment = Environment(
        loader=PackageLoader("devicefix.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters |= {"markdown": _markdown, "coded": _coded, "printable": printable}
    style, script = (_asset(environment, name) for name in (STYLE, SCRIPT))
    page = environment.get_template(TEMPLATE).render(
        migration=migration,
        about=about,
        version=__version__,
        kinds=KINDS,
        safe=SAFE,
        unsafe=UNSAFE,
        left=LEFT,
        style=style,
        script=script,
        allowed=f"style-src {_hash(style)}; script-src {_hash(script)}; img-src data:",
    )
    return page.lstrip()  # the lines of the macros


def _asset(environment: Environment, name: str) -> Markup:
    """A file beside the template, to stand in the page as it is."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


def _hash(text: str) -> str:
    """What lets one inline script or style through a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _shown(value: object) -> object:
    """A value as it goes into the page: text that was not made here with nothing in it that can't be seen."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _markdown(text: str) -> Markup:
    """Markdown as HTML; what is HTML in it is shown as it is."""
    return Markup(MarkdownIt("js-default").render(text))


def _coded(text: str) -> Markup:
    """A message as HTML: what stands in backticks is code, and nothing else in it means anything."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(printable(text)))))
