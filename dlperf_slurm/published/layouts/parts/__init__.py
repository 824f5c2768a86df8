"""What layouts are made of: figures, documents, and how these are printed."""
