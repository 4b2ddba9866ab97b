"""The glossary: terms in alphabetical order under their letter, each with a lesson that is there."""

import re

import pytest

from helpers import course
from tools import _notebooks


@pytest.fixture(scope="module")
def text():
    """Return the glossary's Markdown."""
    cells = _notebooks.read(*_notebooks.find(["92"])).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def test_a_term_is_found_by_its_letter_and_comes_once(text):
    parts = re.split(r"^## (?=\w\n)", text, flags=re.M)[1:]
    found = [(part[0], term) for part in parts for term in re.findall(r"^### (.+)$", part, re.M)]
    terms = [term.lower() for _, term in found]
    assert terms and terms == sorted(set(terms))
    assert all(letter == term[0].upper() for letter, term in found)


def test_each_term_is_a_sentence_that_leads_to_its_lesson(text):
    files = {each.number: each.file for each in course.NOTEBOOKS}
    entries = re.findall(r"^### .+\n.+ \(\[(\d\d)\]\((\w+\.ipynb)(?:#\S+)?\)\)$", text, flags=re.M)
    assert len(entries) == len(re.findall(r"^### ", text, flags=re.M))
    assert [pair for pair in entries if files.get(pair[0]) != pair[1]] == []
