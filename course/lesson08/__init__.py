"""Lesson 08: its exercises, figures and machinery."""
