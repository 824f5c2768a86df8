"""Parts shared by the layouts: figures, documents, and their output."""
