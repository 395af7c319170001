"""Pages and tables as text: HTML that needs nothing but itself, and Markdown. Nothing is computed here.

Text may hold **bold** parts and `code`, as in Markdown.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No dates and no creator: the same numbers give the same file.
SVG_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
# Letters stay letters: the file is small, and its text can be found and read aloud.
SVG_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "wishflow"}
# A hundredth of a point cannot be seen; more digits make half of a file. Numbers between tags are labels, and stay.
TAG, MANY_DIGITS = re.compile(rb"<[^>]+>"), re.compile(rb"(\.\d\d)\d+")
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; padding: 1rem;
  max-width: 78rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p, ul { max-width: 45rem; } li { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; margin: .25rem 0; }
th, td { padding: .25rem .45rem; text-align: right; border-bottom: 1px solid #ddd; }
td { white-space: nowrap; }
th { vertical-align: bottom; border-bottom: 2px solid #888; min-width: 3rem; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; min-width: 6.5rem;
  white-space: normal; max-width: 15rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr)); gap: .5rem; }
.single { max-width: 52rem; }
img { width: 100%; height: auto; display: block; }
.note { color: #555; font-size: .9rem; }
"""


def markdown_table(table: pd.DataFrame) -> str:
    """A frame of text as a Markdown table."""
    lines = [list(table.columns), ["---"] * table.shape[1], *table.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def html_table(table: pd.DataFrame) -> str:
    """A frame of text as an HTML table; the first column stays in sight where the rest is scrolled."""
    head = "".join(f'<th scope="col">{_inline(str(name))}</th>' for name in table.columns)
    rows = [
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>"
        for row in table.astype(str).to_numpy().tolist()
    ]
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n' + "\n".join(rows) + "\n</tbody>\n"
        "</table></div>"
    )


def html_image(figure: Figure, description: str) -> str:
    """A figure inside the page itself, as SVG; the description is for those who cannot see it."""
    data = base64.b64encode(svg(figure)).decode()
    return f'<img alt="{html.escape(description)}" src="data:image/svg+xml;base64,{data}">'


def html_panels(images: Iterable[str]) -> str:
    """Images side by side, as many in a row as the window has room for."""
    return '<div class="panels">\n' + "\n".join(images) + "\n</div>"


def html_single(image: str) -> str:
    """An image by itself, no wider than is good to look at."""
    return f'<div class="single">{image}</div>'


def html_paragraph(text: str, is_note: bool = False) -> str:
    return f'<p class="note">{_inline(text)}</p>' if is_note else f"<p>{_inline(text)}</p>"


def html_list(items: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{_inline(item)}</li>" for item in items) + "\n</ul>"


def html_heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{_inline(text)}</h{level}>"


def html_page(title: str, parts: Iterable[str]) -> str:
    """A whole page: no scripts, nothing fetched from elsewhere, readable on a small screen."""
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{_inline(title)}</h1>
{body}
</body>
</html>
"""


def svg(figure: Figure) -> bytes:
    """A figure as SVG."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context(SVG_SETTINGS):
        figure.savefig(file, format="svg", metadata=SVG_METADATA)
    return TAG.sub(lambda tag: MANY_DIGITS.sub(rb"\1", tag[0]), file.getvalue())


def png(figure: Figure, dpi: int = 150) -> bytes:
    """A figure as PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def _inline(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text, quote=False))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)
