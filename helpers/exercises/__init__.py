"""Exercises of the lessons: one module a lesson, and a small core (`core`, `progress`, `panel`)."""
