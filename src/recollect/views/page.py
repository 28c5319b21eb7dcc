"""Pages: one HTML file each, in English and Chinese, light and dark, without any request to the network."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import cache
from typing import Any


def render(template: str, machine: str, **values: Any) -> str:
    """Fill a template of `views/templates`; `values` are escaped, but for figures and tables, which are Markup.

    machine: the hardware and the versions that it was measured with; see `recollect.core.machine.describe`.
    """
    date = datetime.now(timezone.utc).date().isoformat()
    return _templates().get_template(template).render(machine=machine, date=date, **values)


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("recollect.views")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
