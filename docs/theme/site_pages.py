"""The Markdown pages of the site, apart from the reference, and how their links differ from those of the repository."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath

from benchmark_page import benchmark_page
from gallery_page import gallery_page
from markdown_text import headings, links, point_links_at_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# Files at the top of the repository that are pages of the site.
_FROM_ABOVE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "code_of_conduct.md": "CODE_OF_CONDUCT.md",
}
# Links that leave docs/ in the repository, and where they lead on the site.
_LINKS = {"../benchmarks/results/": "benchmarks/results/"} | {f"../{file}": page for page, file in _FROM_ABOVE.items()}


def own_links(text: str) -> str:
    """Keep the links of a page on the site."""
    return point_links_at_pages(text, _LINKS)


def added_pages() -> dict[str, str]:
    """The pages that are not in docs/, by path."""
    pages = {page: (ROOT / file).read_text().replace("](docs/", "](") for page, file in _FROM_ABOVE.items()}
    pages["gallery.md"] = gallery_page(ROOT / "examples", DOCS / "gallery")
    pages["benchmarks.md"] = benchmark_page(ROOT / "benchmarks")
    return pages


def added_files() -> dict[str, Path]:
    """The files of the site that are not in docs/, by path."""
    results = sorted((ROOT / "benchmarks" / "results").iterdir())
    return {f"benchmarks/results/{result.name}": result for result in results}


def _anchor(heading: str) -> str:
    """The anchor that Markdown gives a heading."""
    text = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page, and those set by hand."""
    found: set[str] = set(re.findall(r'\bid="([^"]+)"', text))
    for heading in headings(text):
        own = re.search(r"\{ *#(\S+) *\}$", heading)
        slug = own[1] if own else _anchor(heading)
        found.add(next(name for name in (slug, *(f"{slug}_{i}" for i in range(1, 99))) if name not in found))
    return found


def broken_links(pages: dict[str, str], files: set[str]) -> Iterator[str]:
    """Links of the pages, given by path and text, that lead to no page, file or heading. Ignores other sites."""
    known = {path: anchors(text) for path, text in pages.items()}
    for path, text in pages.items():
        for link in links(text):
            target, _, fragment = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            leads_to = normpath(f"{path}/../{target}") if target else path
            if leads_to not in known and leads_to not in files:
                yield f"{path}: {link} does not exist"
            elif fragment and fragment not in known.get(leads_to, set()):
                yield f"{path}: {link} has no such heading"
