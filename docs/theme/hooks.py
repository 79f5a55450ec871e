"""What `mkdocs build` does beyond Markdown: pages from elsewhere in the repository, the API reference, formulas."""

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, str(Path(__file__).parent))

from benchmark_page import benchmark_page
from gallery_page import gallery_page
from markdown_text import fence_doctests, point_links_at_pages
from reference import ROOT, public_packages, reference_pages

# Files at the top of the repository that are pages of the site.
_FROM_ABOVE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "code_of_conduct.md": "CODE_OF_CONDUCT.md",
}
# Links that leave docs/ in the repository, and where they lead on the site.
_LINKS = {
    "../benchmarks/results/": "benchmarks/results/",
    "../CHANGELOG.md": "changelog.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../CODE_OF_CONDUCT.md": "code_of_conduct.md",
}


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
    for page, source in _FROM_ABOVE.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    for result in sorted((ROOT / "benchmarks" / "results").iterdir()):
        path = f"benchmarks/results/{result.name}"
        files.append(File.generated(config, path, abs_src_path=str(result), inclusion=InclusionLevel.NOT_IN_NAV))
    gallery = gallery_page(ROOT / "examples", ROOT / "docs" / "gallery")
    files.append(File.generated(config, "gallery.md", content=gallery))
    files.append(File.generated(config, "benchmarks.md", content=benchmark_page(ROOT / "benchmarks")))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path, text in reference_pages(pages).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Highlight doctests and keep links on the site."""
    return fence_doctests(point_links_at_pages(markdown, _LINKS))


_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[2] == "[" else "inline"
    return convert(html.unescape(match[3]).strip(), display=display)


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers render without a script or a font from the network."""
    return _FORMULA.sub(_mathml, html)
