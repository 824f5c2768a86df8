"""Reports: tables, figures and files of a run's results, in all formats and on the terminal."""
