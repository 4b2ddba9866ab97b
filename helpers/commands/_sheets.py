"""What tables for spreadsheets have in common. Only standard library."""


def harmless(text):
    """Return `text` as a cell that no spreadsheet takes for a formula."""
    return (
        "'" + text
        if text.startswith(("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"))
        else text
    )
