"""Lesson 14, Port a project: the project, a model solution, the judge, its exercises and figures."""
