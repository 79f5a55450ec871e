"""The tools of the documentation site that need none of its packages."""

import json
import re
from datetime import date
from pathlib import Path

import pytest
from check_site import problems_of
from markdown_text import fence_doctests, formulas, links, point_links_at_pages
from public_lists import defined_in, file_of, listed_names
from site_pages import added_files, added_pages, anchors, broken_links, own_links

import plackett

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
REFERENCE = ["api/index.md", "api/plackett.md", *(f"api/plackett.{name}.md" for name in plackett._MODULES)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Text\n\n    >>> 1 + 1\n    2\n\nMore", "Text\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore"),
        (">>> f(\n...     1)\n2\n\nMore", "```pycon\n>>> f(\n...     1)\n2\n```\n\nMore"),
        ("```python\n>>> 1\n1\n\n>>> 2\n2\n```\n", "```pycon\n>>> 1\n1\n\n>>> 2\n2\n```\n"),
        ("```python\nx = 1\n```\n", "```python\nx = 1\n```\n"),
        ("A > B and >>> are no doctests", "A > B and >>> are no doctests"),
    ],
)
def test_doctests_become_fenced_blocks(text, expected):
    assert fence_doctests(text) == expected


def test_links_out_of_the_folder_lead_to_pages():
    text = "[a](../CHANGELOG.md#x) and [b](b.md)"
    assert point_links_at_pages(text, {"../CHANGELOG.md": "changelog.md"}) == "[a](changelog.md#x) and [b](b.md)"


def test_site_check_finds_broken_links_and_network_resources(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="https://example.org">4</a>'
        '<script src="https://example.org/x.js"></script><img src="no.png">'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    (tmp_path / "s.css").write_text("@import 'https://example.org/y.css'; a { background: url(data:x) }")
    assert sorted(problems_of(tmp_path)) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: c.html does not exist",
        "a.html: loads https://example.org/x.js from the network",
        "a.html: no.png does not exist",
        "s.css: loads https://example.org/y.css from the network",
    ]


def test_formulas_are_found_outside_code():
    text = "$a_i$ and `$HOME`\n\n```\n$x$\n```\n\n$$b\n= c$$\n"
    assert formulas(text) == [("a_i", False), ("b\n= c", True)]


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_formulas_can_be_read_on_the_site_and_in_the_repository(path):
    for formula, stands_alone in formulas(path.read_text()):
        assert stands_alone or "\n" not in formula, f"{formula}: a formula in a line must not be broken"
        lost = re.search(r"\\[^A-Za-z\s]", formula)  # Markdown takes the backslash off punctuation
        assert not lost, f"{formula}: write a word such as \\lbrace in place of {lost[0]}"
        assert formula.count("{") == formula.count("}"), formula


def site_pages():
    """Every page but the reference, by path."""
    pages = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")} | added_pages()
    return {path: own_links(text) for path, text in pages.items()}


def test_links_between_pages_and_to_their_headings_lead_somewhere():
    files = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*") if path.suffix != ".md"}
    assert list(broken_links(site_pages(), files | set(added_files()) | set(REFERENCE))) == []


def test_the_link_check_finds_broken_links():
    pages = {
        "a.md": "# A `b`\n\n[1](sub/b.md#two_1) [2](sub/b.md#two_2) [3](c.md) ![4](d.png) `[5](e.md)` [6](https://f)",
        "sub/b.md": "## Two\n\n## Two\n\n[1](../a.md#a-b) [2](#three)\n\n```\n## Three\n```\n",
    }
    assert list(broken_links(pages, set())) == [
        "a.md: sub/b.md#two_2 has no such heading",
        "a.md: c.md does not exist",
        "a.md: d.png does not exist",
        "sub/b.md: #three has no such heading",
    ]


def test_pages_have_no_marks_of_a_conflict():
    for path, text in site_pages().items():
        assert not re.search(r"^(<{7}|>{7}|\|{7}) ", text, re.MULTILINE), path


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_files_at_the_top_lead_somewhere(name):
    for link in links((ROOT / name).read_text()):
        target, _, fragment = link.partition("#")
        if not target.startswith("http"):
            path = ROOT / target if target else ROOT / name
            assert path.exists(), link
            assert not fragment or fragment in anchors(path.read_text()), link


def test_navigation_names_pages_that_exist():
    named = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    assert named - set(site_pages()) == {"api/index.md"}


@pytest.mark.parametrize("name", plackett._MODULES)
def test_reference_finds_every_public_name_in_the_sources(name):
    module = f"plackett.{name}"
    names = listed_names(file_of(module))
    assert names
    assert [one for one in names if defined_in(module, one) is None] == []


def test_reference_finds_the_names_at_the_top():
    assert [name for name in plackett._HOME if defined_in("plackett", name) is None] == []


def test_lists_of_names_must_be_literal(tmp_path):
    (tmp_path / "one.py").write_text('__all__ = ["b", "A"]')
    assert listed_names(tmp_path / "one.py") == ["A", "b"]
    for code in ("__all__ = list(NAMES)", "x = 1"):
        (tmp_path / "one.py").write_text(code)
        with pytest.raises(ValueError, match="expected __all__ as a list of texts"):
            listed_names(tmp_path / "one.py")


@pytest.mark.parametrize("path", [*RESULTS, DOCS / "gallery" / "made.json"], ids=lambda path: path.stem)
def test_results_say_when_where_and_with_which_versions_they_were_measured(path):
    stored = json.loads(path.read_text())
    assert date.fromisoformat(stored["date"]) >= date(2026, 11, 1)
    assert stored["versions"]["plackett"]
    if "note" in stored:  # from before results recorded their origin
        assert "date" in stored["note"]
    else:
        assert {"processor", "platform", "python", "numpy", "numba"} <= set(stored["versions"])
