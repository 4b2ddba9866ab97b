"""Reports on programs: `program` runs one, `recorder` collects what it does, `findings` say what to change and where.

A report is shown as text (`screen`) or kept as one HTML page (`page`).
"""
