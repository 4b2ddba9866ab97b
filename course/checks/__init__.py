"""The core of exercises: what a check may say, time limits, the panel that shows it, and progress."""

# The four outcomes of a check
CORRECT = "correct"
NOT_YET = "not yet"
NOT_ATTEMPTED = "not attempted"
ERROR = "error in your code"
