"""Lesson 10: its exercises, figures and machinery."""
