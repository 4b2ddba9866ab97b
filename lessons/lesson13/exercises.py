"""Exercises of lesson 13, The clinic: twelve recorded patients and four that run here."""

from lessons.lesson13 import clinic, processes, running
from lessons.lesson13.clinic import admit, after_the_cure
from lessons.lesson13.patients import PATIENTS
from lessons.lesson13.processes import flight_records, losses
from lessons.lesson13.running import count_graphs, overflowing

# The lesson calls them, too.
__all__ = ["admit", "after_the_cure", "count_graphs", "flight_records", "losses", "overflowing"]

RECORDED = [patient.exercise() for patient in PATIENTS]
starved, waiting, tiny, late, ahead, freed = RECORDED[:6]
straggler, pieces, suspect, scores, unfused, undecided = RECORDED[6:]
hang = processes.hang
recompiles = running.recompiles
overflow = running.overflow
agree = processes.agree


def case_notes():
    """Show how far you are with each of the sixteen patients."""
    clinic.case_notes([*RECORDED, hang, recompiles, overflow, agree])
