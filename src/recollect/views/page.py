"""Pages: one HTML file each, in English and Chinese, light and dark, without any request to the network."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cache
from typing import Any

from recollect.views.figures import COLOURS, Figure


def render(template: str, figures: dict[str, Figure], machine: str, **values: Any) -> str:
    """Fill a template of `views/templates`; everything in `values` is escaped.

    figures: by the id of the element that each is drawn in; see `recollect.views.figures`.
    machine: the hardware and the versions that it was measured with; see `recollect.core.machine.describe`.
    """
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    variables = {colour: f"--{name}" for name, colour in COLOURS.items()}
    date = datetime.now(timezone.utc).date().isoformat()
    shared = {
        "figures": figures,
        "machine": machine,
        "date": date,
        "variables": variables,
        "plotly": Markup(get_plotlyjs()),
    }
    return _templates().get_template(template).render(**shared, **values)


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("recollect.views")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
