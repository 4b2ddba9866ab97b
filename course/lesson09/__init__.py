"""Lesson 09: its exercises, figures and machinery."""
