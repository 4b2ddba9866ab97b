"""Lesson 00: its exercises, figures and machinery."""
