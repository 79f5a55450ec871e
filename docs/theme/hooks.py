"""What `mkdocs build` does beyond Markdown: pages from elsewhere in the repository, the API reference, formulas."""

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

from markdown_text import fence_doctests
from reference import public_packages, reference_pages
from site_pages import added_files, added_pages, own_links


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: the pages of the reference, and pages that no section names."""
    nav = config.nav
    named = set(re.findall(r"[\w./-]+\.md", str(nav)))
    for section in nav:
        if "API" in section:
            section["API"] = ["api/index.md", *({name: f"api/{name}.md"} for name in public_packages())]
    found = {path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")}
    if more := sorted(found - named):
        nav.append({"More": more})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages and pictures from outside docs/, and the generated reference."""
    for path, source in added_files().items():
        files.append(File.generated(config, path, abs_src_path=str(source), inclusion=InclusionLevel.NOT_IN_NAV))
    for path, text in added_pages().items():
        files.append(File.generated(config, path, content=text))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path, text in reference_pages(pages).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Highlight doctests and keep links on the site. Pages without sections need no table of contents."""
    if not any(line.startswith("## ") for line in markdown.split("\n")) and not page.url.startswith("api/"):
        page.meta.setdefault("hide", ["toc"])
    return fence_doctests(own_links(markdown))


_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_PICTURE = re.compile(r'<p>(<img [^>]*src="([^"]+)"[^>]*>)</p>')


def _mathml(match: re.Match[str]) -> str:
    formula = html.unescape(match[3]).strip()
    if match[2] == "[":
        return f'<div class="formula">{convert(formula, display="block")}</div>'
    return convert(formula, display="inline")


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers render without a script; a click on a picture shows it in full size."""
    return _PICTURE.sub(r'<p><a href="\2">\1</a></p>', _FORMULA.sub(_mathml, html))
