"""Printed numbers -> floats, finite whatever the log says."""

# of a size that a float holds; commas separate thousands
NUMBER = r"[-+]?\d[\d,]{0,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,2})?"


def parse_number(text: str) -> float:
    """What NUMBER matched."""
    return float(text.replace(",", ""))
