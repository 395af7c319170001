"""The page on mistakes shows what is printed now, and messages are short and have no traceback."""

from __future__ import annotations

import re

import mistakes
import pytest


@pytest.fixture(scope="module")
def folder():
    with mistakes.folder_of_mistakes():
        yield


@pytest.fixture(scope="module")
def page():
    return mistakes.split_page()[1]


@pytest.mark.parametrize("mistake", mistakes.ALL, ids=lambda mistake: mistake.title)
def test_the_page_shows_the_message(mistake, folder, page, types_unchecked):
    """Run `python -m tests.mistakes` to write the page anew."""
    code, message = mistakes.printed(mistake)
    assert code == mistake.code, message
    assert 1 <= len(message.splitlines()) <= 2 and "Traceback" not in message
    assert mistakes.entry(mistake, message) in page


def test_there_are_thirty_and_no_others_on_the_page(page):
    titles = [mistake.title for mistake in mistakes.ALL]
    assert len(set(titles)) == len(titles) >= 30
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == titles
