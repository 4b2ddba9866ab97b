"""Lesson 01: its exercises, figures and machinery."""
