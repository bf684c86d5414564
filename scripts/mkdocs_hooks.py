"""What the site of docs/ needs beside mkdocs.yml: pages of the top level, decisions, diagrams.

Pages stay readable where the repository is browsed: links are those of its files, diagrams are Mermaid.
"""

from __future__ import annotations

import base64
import html
import os
import re
from pathlib import Path
from typing import Any

import mmdr
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing/changes.md",
    "SECURITY.md": "contributing/security.md",
}
"""Files beside docs/ that are pages of the site, and their places there."""

LINK = re.compile(r"(?<=\]\()([^)\s#]+)")
SIZE = re.compile(r'width="100%"(.*?viewBox="\S+ \S+ (\S+) (\S+)")', re.DOTALL)
TITLE = re.compile(r"^\s*accTitle: *(.+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List folders of the navigation file by file, and draw fenced blocks of Mermaid."""
    config.nav = [_listed(entry, Path(config.docs_dir)) for entry in config.nav or []]
    fences = {"name": "mermaid", "class": "diagram", "format": diagram}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fences]}
    return config


def _listed(entry: Any, docs: Path) -> Any:
    if isinstance(entry, str):
        return entry
    ((title, below),) = entry.items()
    if isinstance(below, list):
        return {title: [_listed(one, docs) for one in below]}
    if below.endswith("/"):
        return {title: [f"{below}{page.name}" for page in _pages(docs / below)]}
    return entry


def _pages(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.md"), key=lambda page: (page.name != "index.md", page.name))


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the top level."""
    for name, place in TOP_LEVEL.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links between the top level and docs/ to their places on the site."""
    if page.file.src_uri.startswith("decisions/"):
        page.meta["search"] = {"boost": 0.2}  # guides come first
    docs = os.path.relpath(config.docs_dir, ROOT)
    place = f"{docs}/{page.file.src_uri}"
    origin = next((name for name, put in TOP_LEVEL.items() if put == page.file.src_uri), place)

    def led(link: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(origin), link[1]))
        if "://" in link[1] or (origin == place and target not in TOP_LEVEL):
            return link[1]
        target = f"{docs}/{TOP_LEVEL[target]}" if target in TOP_LEVEL else target
        return os.path.relpath(target, os.path.dirname(place))

    return LINK.sub(led, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search for screen readers, which the theme does not."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def diagram(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    """Mermaid as a picture in the page; its `accTitle` is the text for those who do not see it."""
    title = TITLE.search(source)
    if title is None:
        raise PluginError(f"A diagram has no line 'accTitle: …':\n{source}")
    try:
        svg = SIZE.sub(r'width="\2" height="\3"\1', mmdr.render(source, backend="merman").svg(), count=1)
    except ValueError as problem:
        raise PluginError(f"A diagram cannot be drawn: {problem}\n{source}") from problem
    data = base64.b64encode(svg.encode()).decode()
    return f'<img class="{css_class}" alt="{html.escape(title[1])}" src="data:image/svg+xml;base64,{data}">'
