"""Lesson 12: its exercises and figures."""
