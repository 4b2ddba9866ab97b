"""The twelve recorded patients, in the order of the lesson."""

from lessons.lesson13.one_gpu import ONE_GPU
from lessons.lesson13.several_gpus import SEVERAL_GPUS

ORDER = (
    "starved",
    "waiting",
    "tiny",
    "late",
    "ahead",
    "freed",
    "straggler",
    "pieces",
    "suspect",
    "scores",
    "unfused",
    "undecided",
)
_BY_NAME = {patient.name: patient for patient in (*ONE_GPU, *SEVERAL_GPUS)}
PATIENTS = tuple(_BY_NAME[name] for name in ORDER)
