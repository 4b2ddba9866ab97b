"""The last line of a report: how long a training step would take on a T4 and on an A100, and why, as the clock forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from practice_gpus.cards import GIB, get_card

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

CARDS = ("T4", "A100 40", "H100 SXM")  # the first two that are large enough
TRIES = 3  # steps that are recorded: the shortest has no evaluation in it
WORTH = 0.05  # share of a step that a line must keep waiting to be named


class Pace:
    """Records what happens between the ends of steps, of the first few."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.log = None
        self.steps: list = []

    def stepped(self) -> None:
        """A step has ended: keep what was recorded since the last one."""
        if self.log is None:
            self._start()
            return
        self.steps.append(self.log.entries)
        self.log.entries = []
        if len(self.steps) == TRIES:
            self.stop()

    def _start(self):
        from practice_gpus.clock import Log  # only where there is a step

        self.log = Log(self.machine)
        self.log.entries = []
        self.machine.observers.append(self.log)

    def stop(self) -> None:
        """Record no longer."""
        if self.log is not None and self.log in self.machine.observers:
            self.machine.observers.remove(self.log)

    def facts(self, peak: int) -> dict | None:
        """The forecast as lists and dictionaries; None without a whole step on a GPU. ``peak``: bytes that must fit."""
        from practice_gpus.clock import Forecast, Launch

        steps = [s for s in self.steps if any(isinstance(entry, Launch) for entry in s)]
        if not steps:
            return None
        sheets = [get_card(name) for name in CARDS]
        sheets = [card for card in sheets if card.memory * GIB >= peak][:2] or sheets[-1:]
        forecasts = [Forecast(card, min(steps, key=len)) for card in sheets]
        first = forecasts[0]
        stop = next(iter(first.waits), None)
        waits = stop if stop is not None and stop.gain_ms > WORTH * first.ms else None
        return {
            "cards": [[f.card.name, f.ms, f.low_ms, f.high_ms] for f in forecasts],
            "bound": first.bound,
            "waits": [waits.line, waits.gain_ms / first.ms] if waits else None,
        }
