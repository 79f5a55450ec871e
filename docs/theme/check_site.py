"""Check a built site: every link leads somewhere, and nothing is loaded from the network.

python docs/theme/check_site.py site
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_IN_STYLES = re.compile(r"""url\(\s*["']?(https?://[^)"']+)|@import\s+["'](https?://[^"']+)""")


class PageParser(HTMLParser):
    """The anchors of a page, the links it has and the resources it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        attribute = _LOADED.get(tag, "")
        if attribute in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values[attribute])


def read_page(path: Path) -> PageParser:
    parser = PageParser()
    parser.feed(path.read_text())
    return parser


def problems_of(site: Path) -> Iterator[str]:
    """Every broken link and every resource from the network."""
    pages = {path: read_page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, page in pages.items():
        name = path.relative_to(site)
        for url in page.loaded:
            if urlsplit(url).scheme in ("http", "https") or url.startswith("//"):
                yield f"{name}: loads {url} from the network"
        for url in page.links + page.loaded:
            parts = urlsplit(url)
            if parts.scheme or url.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if not target.exists():
                yield f"{name}: {url} does not exist"
            elif target.suffix == ".html" and parts.fragment and target.name != "404.html":
                anchors = next((found.anchors for where, found in pages.items() if where.resolve() == target), set())
                if unquote(parts.fragment) not in anchors:
                    yield f"{name}: {url} has no such anchor"
    for path in site.rglob("*.css"):
        for found in _IN_STYLES.finditer(path.read_text()):
            yield f"{path.relative_to(site)}: loads {found[1] or found[2]} from the network"


def main() -> None:
    site = Path(sys.argv[1])
    problems = sorted(set(problems_of(site)))
    print("\n".join(problems) or f"{site}: all links lead somewhere, nothing is loaded from the network")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
