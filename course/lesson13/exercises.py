"""Exercises of lesson 13: seven recorded patients, and four programs that run here."""

from course.checks.core import chosen
from course.lesson08.exercises import forecast_card
from course.lesson13 import processes, running
from course.lesson13 import triage as first
from course.lesson13.clinic import admit, recovery, ward
from course.lesson13.patients import ASKED
from course.lesson13.processes import flight_records, losses
from course.lesson13.running import count_graphs, overflowing
from course.lesson13.steps import attention
from course.lesson13.triage import communication_and_work

# The lesson calls them, too.
__all__ = [
    "admit",
    "attention",
    "chosen",
    "communication_and_work",
    "count_graphs",
    "flight_records",
    "forecast_card",
    "losses",
    "overflowing",
    "recovery",
    "ward",
]

triage = first.exercise
scores, suspect, stranger = (patient.exercise() for patient in ASKED)
hang = processes.hang
recompiles = running.recompiles
overflow = running.overflow
agree = processes.agree
