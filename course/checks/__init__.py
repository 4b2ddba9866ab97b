"""The core of exercises: what a check may say, time limits, the panel that shows it, and progress."""
