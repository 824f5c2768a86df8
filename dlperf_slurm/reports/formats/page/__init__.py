"""What the HTML page is made of: figures in its colours, provenance, and its assets."""
