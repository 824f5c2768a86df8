"""The built site's search_index.json -> search_index.js, which pages in a folder can load."""

from pathlib import Path
from typing import Any


def on_post_build(config: Any) -> None:
    """Called by MkDocs (`hooks` of mkdocs.yml), behind its own search."""
    folder = Path(config["site_dir"]) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"window.searchIndex = {index};\n", encoding="utf-8")
