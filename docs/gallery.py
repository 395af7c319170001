"""The examples as pages: scripts in percent format become Markdown, notebooks and a gallery when the site is built.

MkDocs loads this file as a hook (`hooks:` in mkdocs.yml). Building the site runs no example: figures and printed lines
are kept in docs/figures/examples. `python docs/gallery.py [part of a name ...]` (or `make gallery`) makes them anew.

A script has cells that begin with `# %%` (code) or `# %% [markdown]` (text in comments). Each `plt.show()` is one
figure. The comment behind it is the caption.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parent
SCRIPTS = tuple(sorted((DOCS / "examples").glob("[0-9]*_*.py")))
FIGURES = DOCS / "figures" / "examples"

MATHJAX = "javascripts/tex-svg.js"
FORMULA = 'class="arithmatex"'

CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?\n(?P<source>.*?)(?=^# %%|\Z)", re.MULTILINE | re.DOTALL)
SHOW = re.compile(r"^plt\.show\(\)  # (.+)$", re.MULTILINE)


class Cell(NamedTuple):
    """Text in Markdown, or code."""

    is_text: bool
    source: str


def cells(script: Path) -> list[Cell]:
    """The cells of a script, text without its comment signs."""
    found = []
    for match in CELL.finditer(script.read_text(encoding="utf-8")):
        source = match["source"].strip("\n")
        if match["kind"]:
            source = "\n".join(re.sub("^# ?", "", line) for line in source.splitlines())
        found.append(Cell(bool(match["kind"]), source))
    return found


def code_hash(script: Path) -> str:
    """A short hash of the code alone: figures stay valid while the text around it changes."""
    code = "\n".join(cell.source for cell in cells(script) if not cell.is_text)
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def record_path(script: Path) -> Path:
    """Where the printed lines of a script are kept."""
    return FIGURES / f"{script.stem}.json"


def figure_name(script: Path, number: int) -> str:
    """The file of the figure with this number, from 1 on."""
    return f"{script.stem}-{number}.svg"


def title_of(script: Path) -> str:
    """The heading of a script."""
    return cells(script)[0].source.splitlines()[0].removeprefix("# ")


def opening_of(script: Path) -> str:
    """The first paragraph of a script, in one line."""
    return cells(script)[0].source.split("\n\n")[1].replace("\n", " ")


def page(script: Path) -> str:
    """The page of a script: its text and code, what the code prints, and its figures."""
    record = json.loads(record_path(script).read_text(encoding="utf-8"))
    printed = iter(record["printed"])
    first, *others = cells(script)
    downloads = f"Download it as a [script]({script.name}) or as a [notebook]({script.stem}.ipynb)."
    parts, number = [first.source, downloads], 0
    for cell in others:
        if cell.is_text:
            parts.append(cell.source)
            continue
        code = SHOW.sub("plt.show()", cell.source)  # captions stand below their figures
        parts.append(f"```python\n{code}\n```")
        if text := next(printed):
            parts.append(f"```text\n{text}\n```")
        for caption in SHOW.findall(cell.source):
            number += 1
            file = f"../figures/examples/{figure_name(script, number)}"
            parts.append(f"[![{caption}]({file})]({file})\n\n*{caption}*")  # a click shows it at any size
    return "\n\n".join(parts) + "\n"


def notebook(script: Path) -> str:
    """The same cells as a Jupyter notebook without outputs (nbformat 4.5)."""
    parts = []
    for number, cell in enumerate(cells(script)):
        kind: dict[str, Any] = {"cell_type": "markdown"}
        if not cell.is_text:
            kind = {"cell_type": "code", "execution_count": None, "outputs": []}
        parts.append({**kind, "id": f"cell-{number}", "metadata": {}, "source": cell.source.splitlines(keepends=True)})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": parts, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def index() -> str:
    """The gallery: a card for each example, with its last figure."""
    cards = []
    for script in SCRIPTS:
        n_figures = sum(len(SHOW.findall(cell.source)) for cell in cells(script))
        image = f"../figures/examples/{figure_name(script, n_figures)}"
        goal = opening_of(script).removeprefix("After this example you can ")
        goal = goal[:1].upper() + goal[1:].split(". ")[0].removesuffix(".") + "."
        target = f"{script.stem}.md"
        cards.append(
            f"-   [![{title_of(script)}]({image})]({target})\n\n    **[{title_of(script)}]({target})**\n\n    {goal}"
        )
    return (DOCS / "examples" / "gallery.txt").read_text(encoding="utf-8").format(cards="\n\n".join(cards))


def generated() -> dict[str, str]:
    """All files of the site that are made of scripts, by their place below docs/."""
    files = {"examples/index.md": index()}
    for script in SCRIPTS:
        files[f"examples/{script.stem}.md"] = page(script)
        files[f"examples/{script.stem}.ipynb"] = notebook(script)
    return files


def run(script: Path, show: Callable[[], None]) -> tuple[dict[str, Any], list[str]]:
    """Run the cells of a script; `show` takes the place of `plt.show`. Returns its names and what each cell prints."""
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    printed, true_show = [], plt.show
    plt.show = show
    try:
        for cell in cells(script):
            if not cell.is_text:
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(cell.source, script.name, "exec"), names)
                printed.append(out.getvalue().rstrip())
    finally:
        plt.show = true_show
        plt.close("all")
    return names, printed


def record(script: Path) -> Iterator[Path]:
    """Run a script and keep its figures and what it prints; yields the files."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    written: list[Path] = []

    def save() -> None:
        path = FIGURES / figure_name(script, len(written) + 1)
        plt.gcf().savefig(path, metadata={"Date": None}, bbox_inches="tight", facecolor="white")
        plt.close("all")
        written.append(path)

    # The same file for the same figure: no date, and names of its parts that do not change.
    look = {"font.size": 11.0, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context({"svg.hashsalt": script.stem, **look}):
        _, printed = run(script, save)
    found = {"code": code_hash(script), "printed": printed}
    record_path(script).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    yield from (*written, record_path(script))


def mathjax_file() -> Path:
    """MathJax with formulas as SVG, in one file, from the package sphinx-mathjax-offline (extra `docs`)."""
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("MathJax comes with the package sphinx-mathjax-offline: install the extra `docs`.")
    return Path(spec.origin).parent / "static" / "mathjax" / "tex-svg.js"


def on_files(files: Any, config: Any) -> Any:
    """Hook of MkDocs: pages and notebooks of the examples, and MathJax, join the files of the site."""
    from mkdocs.structure.files import File

    for place, content in generated().items():
        files.append(File.generated(config, place, content=content))
    files.append(File.generated(config, MATHJAX, abs_src_path=str(mathjax_file())))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Hook of MkDocs: pages with formulas load MathJax, of the site itself; others do not."""
    if FORMULA not in output:
        return output
    root = "../" * page.url.count("/")
    return output.replace("</body>", f'<script src="{root}{MATHJAX}"></script>\n</body>')


if __name__ == "__main__":
    for chosen in SCRIPTS:
        if len(sys.argv) == 1 or any(part in chosen.name for part in sys.argv[1:]):
            for file in record(chosen):
                print(f"{file.relative_to(DOCS.parent)}  {file.stat().st_size / 1000:.0f} kB")
