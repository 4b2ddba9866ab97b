"""Lesson 02: its exercises, figures and machinery."""
