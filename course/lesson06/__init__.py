"""Lesson 06: its exercises, figures and machinery."""
