"""What a run needs before it starts: frameworks' environments, data sets, example files."""
