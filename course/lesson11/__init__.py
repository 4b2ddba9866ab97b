"""Lesson 11: its exercises, figures and machinery."""
