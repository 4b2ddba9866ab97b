"""Kernel puzzles: what they share, and those of page 93."""
