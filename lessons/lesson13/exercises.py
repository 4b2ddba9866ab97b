"""Exercises of lesson 13, The clinic: twelve recorded patients and four that run here."""

from lessons.lesson13 import processes, running
from lessons.lesson13.clinic import admit, scorecard
from lessons.lesson13.patients import PATIENTS
from lessons.lesson13.processes import flight_records, losses
from lessons.lesson13.running import count_graphs, overflowing

# The lesson calls them, too.
__all__ = [
    "admit",
    "count_graphs",
    "flight_records",
    "losses",
    "overflowing",
    "scorecard",
]

(
    starved,
    waiting,
    tiny,
    late,
    ahead,
    freed,
    straggler,
    pieces,
    suspect,
    scores,
    unfused,
    undecided,
) = (patient.exercise() for patient in PATIENTS)
hang = processes.hang
recompiles = running.recompiles
overflow = running.overflow
agree = processes.agree
