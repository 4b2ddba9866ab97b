"""Lesson 07: its exercises, figures and machinery."""
