"""Lesson 03: its exercises, figures and machinery."""
