"""Parts of the HTML page: tables, charts, figures, provenance, and assets."""
