"""Predictions: a question asked before a run, and how the guess compares with what the run showed."""

import html
import math

from helpers import show
from helpers.checks import progress
from helpers.figures import number


class Prediction:
    """A question asked before a run; `reveal` compares the stored answer with what the run showed.

    An answer of an earlier day counts: `guess` begins as the stored one. `span` holds the ends of the scale of numbers.
    """

    def __init__(self, key, question, choices, unit, span=(1e-3, 1e3)):
        self.key = key
        self.question = question
        self.choices = choices
        self.unit = unit
        self.span = span
        self._waiting = None  # (output, actual): a reveal that came before the guess
        stored = progress.load().get(f"predict.{key}", {}).get("guess")
        self.guess = stored if self._fits(stored) else None

    def _fits(self, guess):
        if self.choices:
            return guess in self.choices
        return isinstance(guess, (int, float)) and guess > 0

    def choose(self, guess):
        """Store `guess`: one of the choices, or a number above 0 in the prediction's unit."""
        if not self._fits(guess):
            takes = f"one of {list(self.choices)}" if self.choices else "a number above 0"
            raise ValueError(f"guess is {guess!r}; it takes {takes}")
        self.guess = guess
        progress.record(f"predict.{self.key}", guess=guess)
        if self._waiting:
            output, actual = self._waiting
            page, text = _verdict_page(self._verdict(actual))
            output.update({"text/html": page, "text/plain": text}, raw=True)

    def reveal(self, actual):
        """Show how the prediction compares with `actual`: a choice, or a number in the prediction's unit.

        Without a guess it asks for one, with the answer folded below; the guess, once made, opens it.
        """
        if self.guess is not None:
            show.page(*_verdict_page(self._verdict(actual)))
            return
        answer = f"Answer: {self._say(actual)}."
        ask = "Make your guess above first: it takes a second, and you'll remember more."
        folded = f"<details><summary>Show anyway</summary>{html.escape(answer)}</details>"
        output = show.page(f"<p>{html.escape(ask)}</p>{folded}", answer)
        if output:
            self._waiting = output, actual

    def _say(self, value):
        return str(value) if self.choices else f"{number(value)} {self.unit}"

    def _verdict(self, actual):
        if not self.choices:
            return self._distance(actual)
        right = self.guess == actual
        progress.record(f"predict.{self.key}", right=right)
        return f"You predicted: {self.guess}. " + (
            "That is right." if right else f"The answer: {actual}."
        )

    def _distance(self, actual):
        """How far the guess is from the number `actual`, in words and on a scale."""
        told = f"You predicted {self._say(self.guess)}; it was {self._say(actual)}"
        if actual <= 0:
            progress.record(f"predict.{self.key}", factor=float("inf"))
            return f"{told}."
        factor = max(self.guess / actual, actual / self.guess)
        progress.record(f"predict.{self.key}", factor=factor)
        scale = _scale(self.guess, actual, *self.span)
        if factor < 1.05:
            return f"{told}: that is right.\n{scale}"
        way = "too high" if self.guess > actual else "too low"
        return f"{told}: a factor of {factor:.2g} apart, {way}.\n{scale}"


def _verdict_page(text):
    """(HTML, text) of a verdict: its sentence, and the scale below it where there is one."""
    sentence, _, scale = text.partition("\n")
    page = f"<p>{html.escape(sentence)}</p>"
    if scale:
        page += f"<pre>{html.escape(scale)}</pre>"
    return page, text


def _scale(guess, actual, low, high, width=41):
    """A line of text from `low` to `high` on a log scale: "?" where the guess lies, "!" where the answer does."""
    low = min(low, guess, actual)
    high = max(high, guess, actual)
    line = ["·"] * width
    for sign, value in (("?", guess), ("!", actual)):
        line[round((width - 1) * math.log(value / low) / math.log(high / low))] = sign
    return f"{number(low)} {''.join(line)} {number(high)}  ? guess, ! answer"


def predict(key, question, choices=None, unit=None, low=1e-3, high=1e3):
    """Ask `question` before a run and return the `Prediction`, whose `reveal(actual)` the run's cell calls.

    Either `choices` (2 to 5 strings) or `unit` (a number on a log scale from `low` to `high`, both above 0). A stored
    answer of an earlier day is shown and counts.
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
        box.children[1].observe(lambda _: still.update(*_asked(prediction)), names="value")
    else:
        print(_asked(prediction)[1])
    return prediction


def _asked(prediction):
    """(HTML, text) of a prediction where it cannot be clicked: the question, the choices, how to choose."""
    low, high = prediction.span
    choices = prediction.choices or [f"from {number(low)} to {number(high)} {prediction.unit}"]
    note = "Run this cell to choose."
    if prediction.guess is not None:
        note = f"You chose: {prediction._say(prediction.guess)}. Run the notebook up to here to choose again."
    return show.listed("Predict:", prediction.question, choices, note)


def _prediction_widget(prediction):
    import ipywidgets

    note = ipywidgets.HTML(_kept(prediction))
    if prediction.choices:
        index = None if prediction.guess is None else prediction.choices.index(prediction.guess)
        control = ipywidgets.RadioButtons(
            options=prediction.choices, index=index, layout={"width": "auto"}
        )
    else:
        options, index = _options(prediction)
        control = ipywidgets.SelectionSlider(
            options=options, index=index, description="your guess", layout={"width": "36em"}
        )

    def keep(change):
        if change["new"] == "":
            return
        prediction.choose(change["new"])
        note.value = _kept(prediction)

    control.observe(keep, names="value")
    title = ipywidgets.HTML(f"{show.STYLE}<b>Predict:</b> {html.escape(prediction.question)}")
    box = ipywidgets.VBox([title, control, note])
    box.add_class(show.GOES_ON)
    return box


def _kept(prediction):
    if prediction.guess is None:
        return ""
    guess = prediction._say(prediction.guess)
    return f'<span role="status">Kept: {html.escape(guess)}. Now run the next cell.</span>'


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
