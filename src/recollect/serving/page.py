"""The page as one file: its modules joined into one script, its numbers in blocks of data, nothing to request.

The policy allows this one script and this one style sheet, by their hashes, and no connection at all.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from recollect.core.types import JsonObject

STATIC = Path(__file__).parent / "static"
MODULES = (  # each after those that it imports
    "dom", "numbers", "words", "charts", "reading", "state", "source", "knobs", "column", "sentence", "reach",
    "writing", "training", "lesson", "main",
)  # fmt: skip
IMPORT = re.compile(r'^import \{ (.*?) \} from "\./(\w+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
LIVE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


@cache
def script() -> str:
    """Return all modules as one script: each is a function that returns what it exports."""
    return "\n" + "".join(f"const ${name} = (() => {{\n{_module(name)}}})();\n" for name in MODULES)


def _module(name: str) -> str:
    """Return a module with its imports as constants and its exports as what is returned."""
    source = (STATIC / f"{name}.js").read_text(encoding="utf-8")
    exports = [found[2] for found in EXPORT.finditer(source)]
    source = EXPORT.sub(r"\1", IMPORT.sub(r"const { \1 } = $\2;\n", source))
    return f"{source}return {{ {', '.join(exports)} }};\n"


def style() -> str:
    """Return the style sheet."""
    return "\n" + (STATIC / "page.css").read_text(encoding="utf-8")


def hashed(content: str) -> str:
    """Return a content's source expression in a policy."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def offline_page(exhibit: JsonObject, grids: Mapping[str, JsonObject]) -> str:
    """Return the page with its numbers: those of the exhibit, and of every column's knobs."""
    policy = (
        f"default-src 'none'; script-src {hashed(script())}; style-src {hashed(style())}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    blocks = [data_block("exhibit", exhibit), *(data_block(f"variants-{name}", one) for name, one in grids.items())]
    head = f"<style>{style()}</style>"
    tail = "\n".join([*blocks, f'<script type="module">{script()}</script>'])
    return _shell(policy, head, tail)


def live_page() -> str:
    """Return the page that asks the server for its numbers."""
    head = '<link rel="stylesheet" href="static/page.css">'
    return _shell(LIVE_POLICY, head, '<script type="module" src="static/main.js"></script>')


def data_block(name: str, data: object) -> str:
    """Return a block of data that is never run; no text in it can end the block."""
    written = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f'<script type="application/json" id="{name}">{written.replace("<", chr(92) + "u003c")}</script>'


def _shell(policy: str, head: str, tail: str) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    source = (STATIC / "page.html.j2").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    return template.render(policy=Markup(policy), head=Markup(head), tail=Markup(tail))
