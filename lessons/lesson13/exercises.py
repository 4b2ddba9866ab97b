"""Exercises of lesson 13, The clinic: six recorded patients, four that run here, and a stranger."""

from helpers.checks.core import chosen
from lessons.lesson08.exercises import forecast_card
from lessons.lesson13 import processes, running
from lessons.lesson13 import triage as first
from lessons.lesson13.clinic import admit, growth, recovery, ward
from lessons.lesson13.patients import ASKED
from lessons.lesson13.processes import flight_records, losses
from lessons.lesson13.running import count_graphs, overflowing
from lessons.lesson13.steps import attention
from lessons.lesson13.triage import communication_and_work

# The lesson calls them, too.
__all__ = [
    "admit",
    "attention",
    "chosen",
    "communication_and_work",
    "count_graphs",
    "flight_records",
    "forecast_card",
    "growth",
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
