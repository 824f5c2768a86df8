"""Scripts, such as worker.scripts.PACKAGE.MODEL, that train with an external library's trainer."""
