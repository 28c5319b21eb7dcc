"""A picture: drawn once, shown as SVG, as a plotly figure, or as PNG."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.core.serialize import write_file
from recollect.core.types import JsonObject
from recollect.views.scene import Scene

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
ENDINGS = (".svg", ".png", ".json", ".html")
PATIENCE = 180  # seconds for a browser to draw one picture; two on a quiet machine


@dataclass(frozen=True, eq=False)
class Picture:
    """A drawing and its title; charts have a plotly figure with axes of their own beside it.

    >>> picture = rc.Trace.of("ab", {"memory.bytes": [8, 16]}).picture("memory")
    >>> picture.svg()[:4], picture.plotly()["data"][0]["y"]
    ('<svg', [8.0, 16.0])
    """

    title: str
    scene: Scene
    chart: JsonObject | None = None  # a plotly figure; None: the scene as one

    def svg(self) -> str:
        """Return the picture as an SVG that needs nothing else."""
        return self.scene.svg()

    def plotly(self) -> JsonObject:
        """Return a figure of plotly's schema as plain data: for `plotly.io.from_json`, or Plotly.newPlot on a page."""
        return self.scene.plotly() if self.chart is None else self.chart

    def figure(self) -> Any:
        """Return a `plotly.graph_objects.Figure`; raise an ImportError that names the extra where plotly is missing."""
        try:
            from plotly import graph_objects
        except ImportError as error:
            raise ImportError('plotly is not installed; try: pip install "recollect[inspect]"') from error
        return graph_objects.Figure(self.plotly())

    def png(self, scale: float = 2.0) -> bytes:
        """Return the picture as PNG, drawn by a Chromium that is installed: its fonts have every script."""
        browser = next((found for found in map(shutil.which, BROWSERS) if found), None)
        if browser is None:
            raise OSError("png: found no Chromium or Chrome to draw it; install one, or save the picture as .svg")
        width, height = round(self.scene.width), round(self.scene.height)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # the browser may still write to it
            page, image = Path(folder) / "picture.html", Path(folder) / "picture.png"
            style = "<style>*{margin:0}svg{display:block}</style>"
            page.write_text(f'<!doctype html><meta charset="utf-8">{style}{self.svg()}', encoding="utf-8")
            command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            command += [f"--force-device-scale-factor={scale:g}", f"--window-size={width},{height + 200}"]
            command += [f"--user-data-dir={folder}/profile", f"--screenshot={image}", page.as_uri()]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            except subprocess.TimeoutExpired:
                raise OSError(f"png: {browser} drew nothing in {PATIENCE} s; save the picture as .svg") from None
            if not image.is_file():
                raise OSError(f"png: {browser} drew nothing ({done.stderr.strip()[-200:]}); save the picture as .svg")
            return _cut(image.read_bytes(), round(width * scale), round(height * scale))

    def save(self, path: str | Path) -> None:
        """Write the picture as .svg, .png, .json (plotly's) or .html, by the ending of the name."""
        path = Path(path)
        if path.suffix not in ENDINGS:
            raise ValueError(f"{path}: got the ending {path.suffix!r}, expected one of {', '.join(ENDINGS)}")
        if path.suffix == ".png":
            write_file(path, self.png())
        elif path.suffix == ".json":
            write_file(path, json.dumps(self.plotly(), ensure_ascii=False).encode())
        elif path.suffix == ".svg":
            write_file(path, self.svg().encode())
        else:
            head = f'<meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            write_file(path, f"<!doctype html>{head}{self.svg()}".encode())

    def _repr_html_(self) -> str:
        return f'<div style="max-width:100%;overflow-x:auto">{self.svg()}</div>'


def _cut(image: bytes, width: int, height: int) -> bytes:
    """Return an image's upper left part: a browser's window is taller than what it shows."""
    import io

    from PIL import Image

    out = io.BytesIO()
    with Image.open(io.BytesIO(image)) as opened:
        opened.crop((0, 0, width, height)).save(out, "PNG")
    return out.getvalue()
