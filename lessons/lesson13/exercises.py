"""Exercises of lesson 13, The clinic: twelve recorded patients and four that run here."""

from helpers.checks.core import chosen
from lessons.lesson07.exercises import find_waits, time_ms
from lessons.lesson08.exercises import forecast_card
from lessons.lesson13 import clinic, processes, running
from lessons.lesson13 import triage as first
from lessons.lesson13.clinic import admit, ward
from lessons.lesson13.patients import ASKED
from lessons.lesson13.processes import flight_records, losses
from lessons.lesson13.running import count_graphs, overflowing
from lessons.lesson13.steps import attention, reads, texts

# The lesson calls them, too.
__all__ = [
    "admit",
    "attention",
    "chosen",
    "count_graphs",
    "find_waits",
    "flight_records",
    "forecast_card",
    "losses",
    "overflowing",
    "reads",
    "texts",
    "time_ms",
    "ward",
]

triage = first.exercise
RECORDED = [patient.exercise() for patient in ASKED]
waiting, tiny, freed, straggler, suspect, undecided, scores, unfused = RECORDED
hang = processes.hang
recompiles = running.recompiles
overflow = running.overflow
agree = processes.agree


def case_notes():
    """Show how far you are with each exercise on a patient."""
    clinic.case_notes([triage, *RECORDED, hang, recompiles, overflow, agree])
