"""From a template to one file that opens without a network and runs nothing but its own scripts.

What a model or a data set wrote is hostile. Three walls keep it text: Jinja escapes everything that it prints; data for
the scripts travels as JSON in which "<", ">" and "&" are escaped, and the scripts show it as text nodes only; and the page's
content security policy allows the scripts by their SHA-256 and no other, no eval, no connection and no image from outside.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import altair
import jinja2
import vl_convert
from markupsafe import Markup

from tossup.curriculum import atomic
from tossup.curriculum.report import show

ASSETS = resources.files("tossup.curriculum.report") / "assets"


@cache
def bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script of about 0.9 MB, the release that Altair writes for."""
    release = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=release)


def asset(name: str) -> str:
    """The text of one file beside the templates."""
    return (ASSETS / name).read_text(encoding="utf-8")


def render(
    template: str, *, scripts: Sequence[str], charts: Mapping[str, Any], data: Mapping[str, Any], **context: Any
) -> str:
    """One page: `scripts` are names of assets, `charts` specifications by name, `data` what the scripts read.

    Raises:
        ValueError: a script holds its own end tag, which would end it early.
    """
    # The large one last: what the others write is there at the first paint, so nothing moves later.
    sources = [asset("pages.js"), *map(asset, scripts), bundle()]
    if any("</script" in source.lower() for source in sources):
        raise ValueError("a script with </script in it cannot be put into a page")
    hashes = [base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in sources]
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(show.FILTERS)
    return environment.get_template(template).render(
        policy="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "script-src " + " ".join(f"'sha256-{value}'" for value in hashes),
        style=Markup(asset("pages.css")),
        sources=[Markup(source) for source in sources],
        charts=dict(charts),
        data=dict(data),
        **context,
    )


def save(page: str, out: Path) -> None:
    """Write the page; it appears whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic.replacing(out) as file:
        file.write(page.encode())
