"""The pages of docs/ make a site: all of them are in its navigation, links between them resolve, lines are short.

Pages that are made of the examples (docs/gallery.py) are tested like those that are written.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from types import ModuleType

import browser
import pytest
from examples import gallery

import wishflow

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED_FILES = {DOCS / place: content for place, content in gallery.generated().items()}
PAGES = sorted([*DOCS.rglob("*.md"), *(path for path in GENERATED_FILES if path.suffix == ".md")])
LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"^<!-- results:(\w+) -->.*?^<!-- /results:\1 -->", re.MULTILINE | re.DOTALL)
OBJECT = re.compile(r"^::: (wishflow[\w.]*)$", re.MULTILINE)
LONGEST_LINE = 120


def nav_files(entry: object) -> list[str]:
    """The files that an entry of the navigation names, in order."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [file for part in parts for file in nav_files(part)]


def text_of(page: Path) -> str:
    """The Markdown of a page, written or made."""
    return GENERATED_FILES[page] if page in GENERATED_FILES else page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return FENCE.sub("", text_of(page))


def anchor(heading: str) -> str:
    """The anchor that Python-Markdown gives a heading."""
    text = re.sub(r"\]\([^)]*\)|[\[`*]", "", heading)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)}


def broken_links(page: Path) -> list[str]:
    """Links that leave docs/, lead to no file, or to no heading of their page."""
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"https?://", link):
            continue
        file, _, name = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        is_there = (target in GENERATED_FILES or target.is_file()) and target.is_relative_to(DOCS)
        if not is_there or (name and name not in anchors(target)):
            broken.append(link)
    return broken


def test_the_navigation_names_every_page_once():
    nav = nav_files(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert sorted(nav) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_between_pages_resolve(page):
    assert not broken_links(page)


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    """To a missing page, to a missing heading, and out of docs/: the site could not follow any of them."""
    monkeypatch.setitem(globals(), "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "outside.md").write_text("")
    page = tmp_path / "docs" / "page.md"
    wrong = ["gone.md", "#gone", "page.md#gone", "../outside.md"]
    page.write_text("# A title, `here`\n\n[x](#a-title-here) " + " ".join(f"[x]({link})" for link in wrong))
    assert broken_links(page) == wrong


def test_every_page_has_one_title():
    assert not [page.name for page in PAGES if len(re.findall(r"^# ", prose(page), re.MULTILINE)) != 1]


@pytest.mark.parametrize(
    "page", sorted(set(PAGES) - set(GENERATED_FILES)), ids=lambda page: str(page.relative_to(DOCS))
)
def test_lines_are_short_outside_of_tables(page):
    """Parts that are made of result files are as long as these."""
    lines = GENERATED.sub("", page.read_text(encoding="utf-8")).splitlines()
    assert not [line for line in lines if len(line) > LONGEST_LINE and not line.startswith("|")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_opens_with_what_it_is_for(page):
    """The first paragraph says what the reader can do after it, or look up there."""
    opening = prose(page).split("\n\n")[1]
    assert re.match(r"(After this (page|tutorial|example) you|Look up|Fit )", opening), opening


def test_every_decision_has_a_date_and_its_three_parts():
    records = re.split(r"^### ", (DOCS / "decisions.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    parts = re.compile(
        r".+ \(\d{4}-\d\d-\d\d\)\n.*\*\*Context\.\*\*.*\*\*Decision\.\*\*.*\*\*Consequence\.\*\*", re.DOTALL
    )
    assert len(records) > 50 and not [record.partition("\n")[0] for record in records if not parts.match(record)]


def named(path: str) -> object:
    """What a dotted path names: a module, or something in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def test_the_reference_names_what_there_is_and_all_that_is_public():
    objects = [named(path) for page in (DOCS / "reference").glob("*.md") for path in OBJECT.findall(page.read_text())]
    public = [getattr(wishflow, name) for name in wishflow.__all__]
    missing = [thing for thing in public if not isinstance(thing, ModuleType) and thing not in objects]
    assert objects and not missing


@pytest.mark.slow
def test_the_site_needs_no_network(tmp_path):
    """Formulas are drawn and pages fit, at the width of a phone too; the search works; no other host is asked."""
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    if importlib.util.find_spec("sphinx-mathjax-offline") is None or browser.PROGRAM is None:
        pytest.skip("needs the extra docs (sphinx-mathjax-offline) and Chromium")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True, timeout=240)
    outside = re.compile(r"""<(?:script|img|link rel="stylesheet")[^>]+(?:src|href)=["']?https?:""")
    assert not [page.name for page in tmp_path.rglob("*.html") if outside.search(page.read_text(encoding="utf-8"))]
    formulas, drawn = "document.querySelectorAll('.arithmatex')", "document.querySelectorAll('.arithmatex svg')"
    widths = f"Math.min(...[...{drawn}].map(svg => svg.getBoundingClientRect().width))"
    with browser.chromium() as page:
        for width in (1200, 390):
            ready = f"document.readyState === 'complete' && {formulas}.length === {drawn}.length"
            page.open(tmp_path / "model.html", width=width, ready=ready)
            assert page.run(f"{formulas}.length") > 50 and page.run(widths) > 4.0
            assert not page.run("document.querySelectorAll('[data-mml-node=merror]').length")
            assert not page.problems and not [url for url in page.requests if url.startswith("http")]
        for name in ("index", "tutorials/own_file", "howto/choose_a_model", "results", "reference/command_line"):
            page.open(tmp_path / f"{name}.html", width=390, ready="document.readyState === 'complete'")
            assert page.run("document.documentElement.scrollWidth") <= 390, name
            assert not page.problems and not [url for url in page.requests if url.startswith("http")]
        assert found_by_search(page, "conformal_region") == "reference/regression.html"
        assert not page.problems and not [url for url in page.requests if url.startswith("http")]


def found_by_search(page: browser.Page, words: str) -> str:
    """The page that the search of a site opened from files names first, relative to its root."""
    page.run("document.querySelector('#__search').click()")
    page.run(f"""(() => {{
        const field = document.querySelector('.md-search__input');
        field.focus();
        field.value = '{words}';
        field.dispatchEvent(new Event('keyup'));
    }})()""")
    for _ in range(100):
        if link := page.run("document.querySelector('.md-search-result__link')?.href"):
            root = page.run("new URL(JSON.parse(document.querySelector('#__config').textContent).base, location).href")
            return link.removeprefix(root).lstrip("/").partition("?")[0].partition("#")[0]
        time.sleep(0.1)
    raise TimeoutError(f"the search finds nothing: {page.problems}")
