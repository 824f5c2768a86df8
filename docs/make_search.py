"""search_index.json of the built site -> search_index.js, for pages opened from a folder."""

from pathlib import Path
from typing import Any


def on_post_build(config: Any) -> None:
    """Write search_index.js; MkDocs calls this hook (mkdocs.yml) after its own search."""
    folder = Path(config["site_dir"]) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"window.searchIndex = {index};\n", encoding="utf-8")
