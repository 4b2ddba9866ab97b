"""Lesson 13, The clinic: sixteen programs with something wrong, or nothing, and a stranger."""
