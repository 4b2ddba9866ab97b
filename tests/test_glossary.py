"""The glossary: one sentence a term, in alphabetical order, each with the lesson that explains it; no term is missing.

Terms are written in italics where a lesson explains them. An italic phrase has to be in the glossary, or in `EMPHASIS`
where it is plain stress.
"""

import re

import pytest

from helpers import course
from helpers.commands import _notebooks

EMPHASIS = {
    "after",
    "allocated",
    "allowed",
    "and",
    "ask",
    "break it",
    "cannot tell",
    "does",
    "faster",
    "fits",
    "holds",
    "images per second",
    "in practice",
    "index",
    "making",
    "missing",
    "not",
    "now",
    "of that shape",
    "other",
    "private",
    "reading",
    "reserved but unallocated",
    "returns",
    "rung",
    "stays",
    "support",
    "that",
    "the whole ladder",
    "to",
    "tried to allocate",
    "unexpected",
    "visible",
    "wait",
    "who",
}
NUMBERS = [each.number for each in course.LESSONS]


def prose(number):
    """The Markdown of a notebook; skips where the lesson is not there."""
    paths = list(_notebooks.FOLDER.glob(f"{number}_*.ipynb"))
    if not paths:
        pytest.skip(f"no notebook {number}")
    return "\n\n".join(
        cell.source for cell in _notebooks.read(paths[0]).cells if cell.cell_type == "markdown"
    )


def everything(number):
    """All text of a notebook, code too, in lower case and with blanks for hyphens and underscores."""
    path = next(_notebooks.FOLDER.glob(f"{number}_*.ipynb"))
    return re.sub(
        r"[-_]", " ", " ".join(cell.source for cell in _notebooks.read(path).cells)
    ).lower()


@pytest.fixture(scope="module")
def entries():
    """List of (term, sentence, number, file) as the glossary has them."""
    found = re.findall(r"^### (.+)\n(.+) \(\[(\d\d)\]\((\w+\.ipynb)\)\)$", prose("92"), flags=re.M)
    assert len(found) == len(re.findall(r"^### ", prose("92"), flags=re.M)) > 100
    return found


def test_terms_are_in_alphabetical_order_and_come_once(entries):
    terms = [term.lower() for term, *_ in entries]
    assert terms == sorted(terms) and len(set(terms)) == len(terms)


def test_terms_stand_under_their_letter():
    for part in re.split(r"^## (?=\w\n)", prose("92"), flags=re.M)[1:]:
        assert {term[0].upper() for term in re.findall(r"^### (.+)$", part, flags=re.M)} == {
            part[0]
        }


def test_each_term_has_one_sentence(entries):
    for term, sentence, *_ in entries:
        assert sentence[0].isupper() and sentence.endswith((".", "…")), term
        assert not re.search(r"[.!?] [A-Z]", sentence) and len(sentence.split()) <= 30, term


def test_each_term_names_a_lesson_in_which_it_is_found(entries):
    files = {each.number: each.file for each in course.NOTEBOOKS}
    texts = {number: everything(number) for number in {number for _, _, number, _ in entries}}
    for term, _, number, file in entries:
        assert files[number] == file, term
        missing = [
            word
            for word in re.split(r"[ -]", term.lower())
            if word.rstrip("es") not in texts[number]
        ]
        assert missing == [], f"{term!r} in lesson {number}"


def test_links_to_letters_lead_to_headings():
    letters = re.findall(r"\[(\w)\]\(#(\w)\)", prose("92"))
    headings = re.findall(r"^## (\w)$", prose("92"), flags=re.M)
    assert [letter for letter, _ in letters] == [anchor for _, anchor in letters] == headings


def italics(text):
    """The phrases in italics that could be terms: up to three words, no menu, no line about an exercise."""
    text = re.sub(r"`[^`\n]*`", "x", text)
    phrases = re.findall(r"(?<![*\w])\*(?![*\s])([^*\n]{2,60}?)\*(?![*\w])", text)
    return {
        phrase.lower().strip("[]")
        for phrase in phrases
        if len(phrase.split()) <= 3 and not re.search(r"[→…,:0-9]", phrase)
    }


def is_term(phrase, terms):
    """Whether the glossary has the phrase, in some form of the word."""
    return any(
        term in phrase or phrase.rstrip("es") in term or phrase[:8] == term[:8] for term in terms
    )


@pytest.mark.parametrize("number", NUMBERS)
def test_terms_that_lessons_explain_are_in_the_glossary(number, entries):
    terms = {term.lower() for term, *_ in entries}
    unknown = {phrase for phrase in italics(prose(number)) - EMPHASIS if not is_term(phrase, terms)}
    assert unknown == set(), "explain them in notebook 92, or list them as EMPHASIS here"


def test_phrases_and_terms_are_matched_by_the_word_not_by_chance():
    assert is_term("batches", {"batch"}) and is_term("pinned", {"pinned memory"})
    assert is_term("fragmented", {"fragmentation"})
    assert not is_term("warp", {"warm up", "workspace"}) and not is_term(
        "occupancy", {"out of memory"}
    )
    assert italics("*About 5 lines*, *a term*, `x *not* y`, **bold**, *Kernel → Restart*") == {
        "a term"
    }
