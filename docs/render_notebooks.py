"""Notebooks of docs/ with their outputs -> pages of the site; options are not broken there."""

import json
import re
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    """Replace each notebook by a page; MkDocs calls this hook (mkdocs.yml)."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        cells = json.loads(file.content_string)["cells"]
        text = "\n\n".join(part for cell in cells for part in _list_parts(cell))
        files.remove(file)
        name = file.src_uri.replace(".ipynb", ".md")
        files.append(File.generated(config, name, content=f"{text}\n"))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to notebooks lead to their pages."""
    return markdown.replace(".ipynb)", ".md)")


def on_page_content(html: str, **_: Any) -> str:
    """Keep options such as --cuda on one line, also in narrow cells of tables."""
    option = r"(--[a-z][a-z-]*)(?=[^<>]*</code>)"
    return re.sub(option, r'<span class="option">\1</span>', html)


def _list_parts(cell: dict[str, Any]) -> list[str]:
    """List the text or code of a cell and its outputs, as Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    parts = [f"```python\n{source}\n```"]
    for output in cell.get("outputs", []):
        data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
        if "image/png" in data:
            parts.append(f"![figure](data:image/png;base64,{data['image/png'].strip()})")
        elif "text/html" in data:
            # the theme wraps tables without a class
            parts.append(data["text/html"].replace(' border="1" class="dataframe"', ""))
        elif "text" in output or "text/plain" in data:
            parts.append(f"```text\n{data.get('text/plain') or ''.join(output['text'])}\n```")
    return parts
