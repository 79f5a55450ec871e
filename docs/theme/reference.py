"""The API reference: one page per public package, with every public name and the pages that show its use."""

import re
import sys
from dataclasses import dataclass, field
from functools import cache

import griffe
from markdown_text import words_of_examples
from public_lists import ROOT, listed_names

TOP = "plackett"


@dataclass
class PublicName:
    """A name that users may import."""

    path: str
    """`plackett.package.name`."""
    canonical: str
    """Where the name is defined."""
    uses: list[str] = field(default_factory=list)
    """Pages that use the name in an example."""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@cache
def load_package() -> griffe.Object:
    """The package, read without running it."""
    loader = griffe.GriffeLoader(search_paths=[str(ROOT / "src")])
    package = loader.load(TOP)
    loader.resolve_aliases(external=False)
    return package


@cache
def public_packages() -> dict[str, list[str]]:
    """The public names of each public package, in the order of the pages. Importing plackett loads nothing else."""
    sys.path.insert(0, str(ROOT / "src"))
    import plackett

    package = load_package()
    homes = [name for name in plackett._HOME if name not in plackett._MODULES]
    packages = {TOP: sorted(homes, key=str.lower)}
    for name in plackett._MODULES:
        packages[f"{TOP}.{name}"] = listed_names(package[name].filepath)
    return packages


def public_names(uses: dict[str, list[str]]) -> dict[str, list[PublicName]]:
    """Every public name by package; `uses` are the pages that use each name."""
    package = load_package()
    found = {}
    for module, names in public_packages().items():
        found[module] = []
        for name in names:
            path = f"{module}.{name}"
            member = package[path.removeprefix(f"{TOP}.")]
            found[module].append(PublicName(path, member.canonical_path, uses.get(name, [])))
    return found


def pages_by_name(pages: dict[str, str]) -> dict[str, list[str]]:
    """For every public name the pages, given by path and text, whose examples use it."""
    wanted = {name for names in public_packages().values() for name in names}
    uses: dict[str, list[str]] = {}
    for path, text in pages.items():
        for name in sorted(wanted & words_of_examples(text)):
            uses.setdefault(name, []).append(path)
    return uses


def title_of(text: str, path: str) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else path


def reference_pages(pages: dict[str, str]) -> dict[str, str]:
    """The pages of the reference by path."""
    names = public_names(pages_by_name(pages))
    titles = {path: title_of(text, path) for path, text in pages.items()}
    written = {}
    home: dict[str, str] = {}  # the page of every object: that of the first package that lists it
    for module, members in names.items():
        lines = [f"# {module}", ""]
        if module != TOP:
            lines += [f"::: {module}", "    options:", "      members: false", "      show_root_heading: false", ""]
        for one in members:
            first = home.setdefault(one.canonical, one.path)
            if first != one.path:
                lines += [f"## `{one.name}` {{ #{one.path} }}", "", f"See [`{first}`][{first}].", ""]
                continue
            lines += [f"::: {one.path}", ""]
            if one.uses:
                links = ", ".join(f"[{titles[page]}](../{page})" for page in one.uses[:6])
                lines += [f"Examples: {links}.", ""]
        written[f"api/{module}.md"] = "\n".join(lines)
    written["api/index.md"] = _index(names)
    return written


def _index(names: dict[str, list[PublicName]]) -> str:
    lines = [
        "# API reference",
        "",
        "Users may import the names on these pages; everything else is private and may change without notice. The",
        "[policy](../policy.md) says how public names change.",
        "",
    ]
    for module, members in names.items():
        links = ", ".join(f"[`{one.name}`]({module}.md#{one.path})" for one in members)
        lines += [f"## [`{module}`]({module}.md)", "", links, ""]
    return "\n".join(lines)
