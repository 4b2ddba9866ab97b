"""Exercises of lesson 13, The clinic: twelve recorded patients and four that run here."""

from helpers.checks.core import chosen
from lessons.lesson08.exercises import forecast_card
from lessons.lesson13 import clinic, processes, running
from lessons.lesson13 import triage as first
from lessons.lesson13.clinic import admit, latecomer, recovery, ward
from lessons.lesson13.patients import ASKED, PATIENTS
from lessons.lesson13.processes import flight_records, losses
from lessons.lesson13.running import count_graphs, overflowing
from lessons.lesson13.steps import attention, texts

# The lesson calls them, too.
__all__ = [
    "admit",
    "attention",
    "chosen",
    "count_graphs",
    "flight_records",
    "forecast_card",
    "latecomer",
    "losses",
    "overflowing",
    "recovery",
    "texts",
    "ward",
]

triage = first.exercise
RECORDED = {PATIENTS.index(patient) + 1: patient.exercise() for patient in ASKED}
waiting, straggler, suspect, scores = RECORDED.values()
hang = processes.hang
recompiles = running.recompiles
overflow = running.overflow
agree = processes.agree


def case_notes():
    """Show how far you are with each exercise on a patient."""
    here = dict(enumerate((hang, recompiles, agree, overflow), len(PATIENTS) + 1))
    clinic.case_notes({1: triage} | RECORDED | here)
