"""The tools of the documentation site that need none of its packages."""

import re
from pathlib import Path

import pytest
from check_site import problems_of
from markdown_text import fence_doctests, formulas, point_links_at_pages

DOCS = Path(__file__).parents[1] / "docs"


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
