"""Reports: the tables of a run in cells, which formats, layouts and the terminal print."""
