"""What the HTML page is made of: tables that know their footnotes, figures, provenance."""
