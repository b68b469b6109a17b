"""Hooks of mkdocs: pages from outside docs/, the notebook as a page, links to files that are no pages.

index.md         README.md
changelog.md     CHANGELOG.md
contributing.md  CONTRIBUTING.md
first.md         first.ipynb: its text, its code and what that shows
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
MOVED = {"docs/algorithms": "docs/grid.md", "docs/first.ipynb": "docs/first.md"}
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """A page that the menu does not name yet stands under "More"."""

    def named(menu: Any) -> set[str]:
        if isinstance(menu, str):
            return {menu}
        return set().union(*(named(below) for below in (menu.values() if isinstance(menu, dict) else menu)))

    pages = (path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    if more := sorted(set(pages) - named(config.nav)):
        config.nav.append({"More": more})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what is not in docs/."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relinked(text, source)))
    text, pictures = notebook(ROOT / "docs/first.ipynb")
    files.append(File.generated(config, "first.md", content=relinked(text, "docs/first.md")))
    for name, content in pictures.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of docs/ to files outside of it."""
    name = page.file.src_uri
    return markdown if name in {*PAGES.values(), "first.md"} else relinked(markdown, f"docs/{name}")


def on_page_content(html: str, **_: Any) -> str:
    """A date in a cell of its own stays on one line (site.css)."""
    return re.sub(r"<td>(\d{4}-\d\d-\d\d)</td>", r'<td class="date">\1</td>', html)


def relinked(text: str, source: str) -> str:
    """Links as the site has them: `docs/grid.md` is `grid.md` there, a file that is no page becomes its name.

    >>> relinked("[a](docs/grid.md#words), [b](LICENSE), [c](https://c.org)", "README.md")
    '[a](grid.md#words), `LICENSE`, [c](https://c.org)'
    """

    def new(match: re.Match[str]) -> str:
        words, link = match.groups()
        if re.match(r"[a-z]+:|#", link):
            return match[0]
        path, mark, anchor = link.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        there = MOVED.get(there, there)
        found = there.removeprefix("docs/") if there.startswith("docs/") else PAGES.get(there)
        if found is None:
            return f"`{there}`"
        here = posixpath.dirname(source.removeprefix("docs/"))
        return f"{words}({posixpath.relpath(found, here or '.')}{mark}{anchor})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _LINK.sub(new, part) for part in parts)


def notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook's cells as Markdown, with what they show; and its pictures, by the names in the text."""
    out: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            out.append(source)
            continue
        out.append(f"```python\n{source}\n```")
        for shown in cell["outputs"]:
            if "text" in shown:
                out.append(f"```text\n{''.join(shown['text'])}```")
            else:
                name = f"pictures/{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(shown["data"]["image/png"])
                out.append(f"![What the cell above draws]({name})")
    return "\n\n".join(out) + "\n", pictures
