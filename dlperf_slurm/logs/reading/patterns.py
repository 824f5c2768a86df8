"""Pieces of the patterns by which formats know their lines."""

# what Python's logging puts before a message: INFO:root:, or a time with name and level
LOGGER_PREFIX = (
    r"(?:INFO:[\w.]{0,60}:\s?"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?[\s:-]{0,4}"
    r"(?:[\w.]{1,60}[\s:-]{1,4}){0,2})?"
)
# a line of it may be long: what it holds is looked for with parse_namespace
NAMESPACE = r"Namespace\((.*)\)\s*$"
COUNT = r"\d{1,9}"
DECIMAL = r"\d{1,9}\.\d{1,9}"
