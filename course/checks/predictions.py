"""Predictions: a question asked before a run, and how the first guess compares with what the run showed."""

import asyncio
import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from course import show
from course.checks import panel, progress
from course.show import figures, vega
from helpers.plots import number

SETTLED = 1.5  # seconds without another move, after which a guess is final: arrow keys pass other choices on their way
NEAR, CLOSE = 1.15, 2  # factors between guess and truth up to which a number is right, and close
RUN_FIRST = "Run the cell above, then choose."
ASK = "Guess before you look: you'll remember more."


class _Pause:
    """Runs an action when nothing has been started again for SETTLED seconds; at once where no event loop runs."""

    def __init__(self):
        self.waiting = None

    def start(self, action):
        if self.waiting:
            self.waiting.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            action()
            return
        self.waiting = loop.call_later(SETTLED, action)


class Prediction:
    """A question asked before a run; `reveal` compares the stored guess with what the run showed.

    A guess of an earlier day counts. Once it has been compared it stays: the first guess is the verdict. `span` holds
    the ends of the scale of numbers.
    """

    def __init__(self, key, question, choices, unit, span=(1e-3, 1e3)):
        self.key = key
        self.question = question
        self.choices = choices
        self.unit = unit
        self.span = span
        self.changed = lambda: None  # told when the guess is made, and when it is compared
        self._pause = _Pause()
        self._waiting = None  # a reveal before the guess: (output, what it tells then, the chart's output, chart)
        stored = progress.load().get(f"predict.{key}", {})
        self.guess = stored.get("guess") if self._fits(stored.get("guess")) else None
        self.compared = self.guess is not None and bool({"right", "factor"} & set(stored))

    def _fits(self, guess):
        if self.choices:
            return guess in self.choices
        return isinstance(guess, (int, float)) and guess > 0

    def choose(self, guess: Any) -> None:
        """Store `guess`: one of the choices, or a number above 0 in its unit; the first one stays once compared."""
        if not self._fits(guess):
            takes = f"one of {list(self.choices)}" if self.choices else "a number above 0"
            raise ValueError(f"guess is {guess!r}; it takes {takes}")
        if self.compared:
            return
        self.guess = guess
        progress.record(f"predict.{self.key}", guess=guess)
        self.changed()
        if self._waiting:
            self._pause.start(self._open)

    def _open(self):
        """Put the verdict, and what is shown with it, where a reveal has asked for a guess."""
        output, told, place, chart = self._waiting
        page, text = told()
        page += chart.below if chart else ""
        output.update({"text/html": page, "text/plain": text}, raw=True)
        if chart:
            data, metadata = chart.bundle()
            place.update(data, metadata=metadata, raw=True)

    def reveal(
        self,
        actual: Any,
        because: str = "",
        *,
        figure: tuple | None = None,
        chart: vega.Chart | None = None,
        lines: str | Iterable[str] = (),
    ) -> None:
        """Show how the guess compares with `actual`, a choice or a number; `because` says what that means.

        With the verdict come a `figure` (a tuple as `course.show.figures.show` takes it), a `chart` that can be moved
        and `lines` of text. Without a guess the panel asks for one, and everything stays folded; a guess opens it.
        """
        more_page, more_text = _more(figure, lines)

        def told():
            verdict = self._verdict(actual, because)
            return panel.as_html(verdict) + more_page, panel.as_text(verdict) + more_text

        if self.guess is not None:
            show.page(*told())
            if chart:
                chart.show()
            return
        answer = f"Answer: {self.say(actual)}. {because}".strip()
        still = figures.page(chart.figure, chart.alt, chart.caption) if chart else ""
        folded = f"<details><summary>Show anyway</summary>{html.escape(answer)}{more_page}{still}</details>"
        asked = panel.as_html(panel.Content("open", "What is your guess?", ASK)) + folded
        output = show.page(asked, answer + more_text + (f"\n{chart.words}" if chart else ""))
        if output:
            later = f'<div class="{show.STILL}" title="after your guess"></div>'
            place = chart and show.page(later, "", chart.stored())  # a web page makes it live
            self._waiting = output, told, place, chart

    def say(self, value: Any) -> str:
        """`value` in words: a choice, or a number with its unit."""
        return str(value) if self.choices else f"{number(value)} {self.unit}"

    def _verdict(self, actual, because):
        self.compared = True
        self.changed()
        compare = self._of_choices if self.choices else self._of_numbers
        return compare(actual, because)

    def _of_choices(self, actual, because):
        right = self.guess == actual
        progress.record(f"predict.{self.key}", right=right)
        if right:
            return panel.Content("right", "Right!", f"You predicted “{actual}”.", because)
        told = f"You predicted “{self.guess}”. The answer is “{actual}”."
        return panel.Content("wrong", "Not this time", told, because)

    def _of_numbers(self, actual, because):
        told = f"You predicted {self.say(self.guess)}. It is {self.say(actual)}."
        if actual <= 0:
            progress.record(f"predict.{self.key}", factor=float("inf"))
            return panel.Content("wrong", "Not this time", told, because)
        factor = max(self.guess / actual, actual / self.guess)
        progress.record(f"predict.{self.key}", factor=factor)
        state, title = "right", "Spot on!" if factor <= NEAR else "Close!"
        if factor > CLOSE:
            way = "too high" if self.guess > actual else "too low"
            state, title = "wrong", f"{number(factor, 2)} times {way}"
        scale = panel.Scale(self.guess, actual, *self.span, self.unit)
        return panel.Content(state, title, told, because, scale)


def _more(figure, lines):
    """(HTML, text) of what comes with a verdict."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    page = f"<pre>{html.escape(text)}</pre>" if text else ""
    if figure:
        page += figures.page(*figure)
        text = "\n".join(filter(None, [text, figures.words(*figure)]))
    return page, text and f"\n{text}"


def predict(
    key: str,
    question: str,
    choices: Sequence[str] | None = None,
    unit: str | None = None,
    low: float = 1e-3,
    high: float = 1e3,
) -> Prediction:
    """Ask `question` before a run and return the `Prediction`, whose `reveal(actual)` the run's cell calls.

    Either `choices` (2 to 5 strings) or `unit` (a number on a log scale from `low` to `high`, both above 0). A stored
    guess of an earlier day is shown and counts.
    """
    if (choices is None) == (unit is None):
        raise ValueError(
            "predict takes either choices (strings) or unit (for a number), not both and not neither"
        )
    if not 0 < low < high:
        raise ValueError(f"low and high are {low!r} and {high!r}; they take 0 < low < high")
    prediction = Prediction(key, question, tuple(choices) if choices else None, unit, (low, high))
    if show.inside_notebook():
        box = _prediction_widget(prediction)
        still = show.widget(box, *_asked(prediction))
        in_widget = prediction.changed

        def changed():
            in_widget()
            still.update(*_asked(prediction))

        prediction.changed = changed
    else:
        print(_asked(prediction)[1])
    return prediction


def _asked(prediction):
    """(HTML, text) of a prediction where it cannot be clicked: the question, the choices, what has become of it."""
    low, high = prediction.span
    scale = f"A number from {number(low)} to {number(high)} {prediction.unit}."
    note = _note(prediction) or ("" if prediction.choices else scale)
    choices = prediction.choices or ()
    question = prediction.question
    return show.listed("Predict:", question, choices, note, prediction.guess, RUN_FIRST)


def _note(prediction):
    """What has become of the guess, in a sentence; "" where there is none."""
    if prediction.guess is None:
        return ""
    guess = f"Your guess: {prediction.say(prediction.guess)}."
    if prediction.compared:
        below = " The answer is below." if prediction._waiting else ""
        return f"{guess}{below} The first guess counts."
    after = "The answer follows below." if prediction._waiting else "Run the next cell."
    return f"{guess} {after}"


def _prediction_widget(prediction):
    title = f"<b>Predict:</b> {show.code_in(prediction.question)}"
    control = _choices(prediction) if prediction.choices else _slider(prediction)
    box = panel.question(title, control)

    def changed():
        control.disabled = prediction.compared  # the first guess stays, and so does what shows it
        box.children[2].value = panel.status(_note(prediction))

    def chosen(change):
        if change["new"] != "":
            prediction.choose(change["new"])

    control.observe(chosen, "value")
    prediction.changed = changed
    changed()
    box.add_class(show.GOES_ON)
    return box


def _choices(prediction):
    import ipywidgets

    index = None if prediction.guess is None else prediction.choices.index(prediction.guess)
    return ipywidgets.RadioButtons(
        options=prediction.choices, index=index, layout={"width": "auto"}
    )


def _slider(prediction):
    import ipywidgets

    options, index = _options(prediction)
    return ipywidgets.SelectionSlider(
        options=options, index=index, description="your guess", layout={"width": "36em"}
    )


def _options(prediction):
    """The options of a slider on a log scale, ten to a power of ten after "not chosen yet"; the index to show first."""
    low, high = prediction.span
    steps = round(10 * math.log10(high / low))
    values = [float(f"{low * (high / low) ** (k / steps):.2g}") for k in range(steps + 1)]
    options = [("not chosen yet", "")]
    options += [(f"{number(value)} {prediction.unit}", value) for value in values]
    if prediction.guess is None:
        return options, 0
    nearest = min(values, key=lambda value: abs(math.log(value / prediction.guess)))
    return options, 1 + values.index(nearest)
