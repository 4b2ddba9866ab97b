"""Questions of a stored page as a web page asks them: native radio buttons or a slider, the answer in a fold.

A stored page holds what `course.show.listed` and `Prediction.reveal` wrote. `site.js` judges a guess where a script
runs; elsewhere a list and the fold are left. Nothing is sent anywhere.
"""

import re
from html import unescape
from typing import Any

from course.checks import predictions

CARD = re.compile(
    r'<div class="course-card"( style="[^"]*")>(<div><b>[^<]*</b>.*?</div>)'
    r"((?:<div>[○•] .*?</div>)*)(?:<div><i>A number from ([\d.,]+) to ([\d.,]+) (.*?)\.</i></div>)?"
    rf"(?:<div><i>{re.escape(predictions.RUN_FIRST)}</i></div>)?</div>"
)
CHOICE = re.compile("<div>[○•] (.*?)</div>")
ASKED = re.compile(
    r'(?:<div role="status" class="course-panel"(?:(?!<details>).)*)?'
    r"<details><summary>Show (?:anyway|the answer)</summary>((?:(?!<div |<pre|</details>|<p ).)*)",
    re.DOTALL,
)
TAG = re.compile("<[^>]+>")
NUMBER = re.compile(r"([\d,]*\.?\d+) ")
LOOK = "Guessed? Look"


def alive(notebook: Any) -> None:
    """Give each stored question its controls, and its answer the fold that they open, in the pages' HTML outputs."""
    asked: list[dict] = []  # of all questions so far
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            html = output.get("data", {}).get("text/html", "")
            if 'class="course-card"' in html or "<summary>Show " in html:
                output.data["text/html"] = _of_output(html, asked)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            html = output.get("data", {}).get("text/html", "")
            if "<!-- question " in html:
                output.data["text/html"] = re.sub(
                    r"<!-- question (\d+) -->", lambda found: _form(asked[int(found[1])]), html
                )


def _of_output(html: str, asked: list[dict]) -> str:
    """Note the questions and answers of an output; return it with a mark for each question and a fold for each answer."""
    parts = re.compile(f"(?s:{CARD.pattern})|(?s:{ASKED.pattern})")

    def part(found: re.Match) -> str:
        if found[2] is None:  # the answer to the last question that has none yet
            question = next((each for each in asked if "answer" not in each), None)
            if question is None:
                return found[0].replace("Show anyway", LOOK)
            question["answer"] = unescape(TAG.sub("", found[7])).removeprefix("Answer: ")
            words = f"Answer: {found[7].removeprefix('Answer: ')}".replace("\n\n", "<br><br>")
            return f'<details class="reveal" id="{question["name"]}"><summary>{LOOK}</summary><div>{words}</div>'
        question = {"name": f"guess-{len(asked) + 1}", "style": found[1], "title": found[2]}
        question |= {"choices": CHOICE.findall(found[3]), "span": found.group(4, 5, 6)}
        asked.append(question)
        return f"<!-- question {len(asked) - 1} -->"

    return parts.sub(part, html)


def _form(question: dict) -> str:
    """Return a question as HTML: a list, and controls where its answer is stored on the page."""
    name, choices = question["name"], question["choices"]
    judged = _right(question) if "answer" in question else ""
    controls = _radios(name, choices) if choices else _range(*question["span"])
    if not judged:
        controls = f"<ul>{''.join(f'<li>{choice}</li>' for choice in choices)}</ul>"
    title = question["title"].removeprefix("<div>").removesuffix("</div>")
    return (
        f'<form class="course-card guess"{question["style"]} data-reveal="{name}"{judged} autocomplete="off">'
        f'<fieldset><legend>{title}</legend>{controls}<p role="status"></p></fieldset></form>'
    )


def _right(question: dict) -> str:
    """Return what judges a guess, as attributes: the place of the right choice, or the number and its unit."""
    told = question["answer"]
    if not question["choices"]:
        found = NUMBER.match(told)
        factors = f' data-near="{predictions.NEAR}" data-close="{predictions.CLOSE}"'
        actual = f' data-actual="{found[1].replace(",", "")}"' if found else ""
        return actual + factors if found else " data-open"
    fits = [
        (len(choice), place)
        for place, choice in enumerate(unescape(TAG.sub("", each)) for each in question["choices"])
        if re.match(re.escape(choice) + r"(?:[.:]|$)", told.replace("`", ""))
    ]
    return f' data-right="{max(fits)[1]}"' if fits else " data-open"


def _radios(name: str, choices: list[str]) -> str:
    """Return `choices` as radio buttons."""
    labels = "".join(
        f'<label><input type="radio" name="{name}" value="{place}"> <span>{choice}</span></label>'
        for place, choice in enumerate(choices)
    )
    return f"{labels}<button hidden>That's my guess</button>"  # for who chose by keyboard


def _range(low: str, high: str, unit: str) -> str:
    """Return a slider on a logarithmic scale, as a page in JupyterLab has."""
    ends = f'data-low="{low.replace(",", "")}" data-high="{high.replace(",", "")}"'
    return (
        f'<div class="plain">A number from {low} to {high} {unit}.</div><div class="scale">'
        f'<input type="range" min="0" max="100" value="50" {ends} data-unit="{unit}" aria-label="Your guess, {unit}">'
        "<output></output> <button>That's my guess</button></div>"
    )
