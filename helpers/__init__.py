"""Plumbing for the lessons.

Import from the module that holds what you need, for example `from helpers.devices import pick_device`.
"""
