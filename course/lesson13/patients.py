"""The six recorded patients in the order of the lesson and a stranger, as `patients.ini` describes them."""

import ast
import configparser
import re
from pathlib import Path

from course.lesson13.patient import Patient


def _patients():
    table = configparser.ConfigParser(interpolation=None, delimiters="=")
    table.read(Path(__file__).with_name("patients.ini"), encoding="utf-8")
    return tuple(_patient(name, table[name]) for name in table.sections())


def _patient(name, facts):
    plain = {key: facts.get(key, "") for key in ("case", "title", "source", "right", "cure")}
    evidence = ast.literal_eval(facts.get("evidence", "None"))
    near = {float(number): text for number, text in _after("if", facts)}
    wrong = {word: text for word, text in _after("not", facts) if word != plain["right"]}
    return Patient(name, evidence=evidence, near=near, wrong=wrong, **plain)


def _after(word, facts):
    """(the rest of the key, value) of each of `facts` whose key begins with `word`."""
    return [(key[len(word) + 1 :], facts[key]) for key in facts if re.match(rf"{word} ", key)]


*PATIENTS, STRANGER = _patients()
ASKED = tuple(patient for patient in (*PATIENTS, STRANGER) if patient.source)
