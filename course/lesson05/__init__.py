"""Lesson 05: its exercises, figures and machinery."""
