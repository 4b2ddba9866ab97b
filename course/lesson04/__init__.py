"""Lesson 04: its exercises, figures and machinery."""
