"""Markdown text: changes before it is rendered, and what can be found in it."""

import doctest
import re

_FENCED = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1 *\S.*)*", re.MULTILINE)


def _fence(match: re.Match[str]) -> str:
    margin = match[1][4:]  # what indents the block beyond the four blanks of a code block
    lines = [margin + line.removeprefix(match[1]) for line in match[0].split("\n")]
    return "\n".join([f"{margin}```pycon", *lines, f"{margin}```"])


def fence_doctests(text: str) -> str:
    """Turn doctests into highlighted blocks, whether they stand in the text, are indented, or are fenced as Python."""
    parts, last = [], 0
    for fenced in _FENCED.finditer(text):
        parts.append(_DOCTEST.sub(_fence, text[last : fenced.start()]))
        parts.append(re.sub(r"```python\n(?= *>>>)", "```pycon\n", fenced[0]))
        last = fenced.end()
    return "".join([*parts, _DOCTEST.sub(_fence, text[last:])])


def point_links_at_pages(text: str, pages: dict[str, str]) -> str:
    """Replace the targets of links, by their beginning."""
    for target, page in pages.items():
        text = text.replace(f"]({target}", f"]({page}")
    return text


_CODE = re.compile(r"(`+).*?\1", re.DOTALL)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(?!\s)([^$]+?)(?<!\s)\$", re.DOTALL)


def formulas(text: str) -> list[tuple[str, bool]]:
    """The formulas of a page, and whether each stands in a paragraph of its own."""
    prose = _CODE.sub("", _FENCED.sub("", text))
    return [(found[1] or found[2], found[1] is not None) for found in _FORMULA.finditer(prose)]


_LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def links(text: str) -> list[str]:
    """The targets of the links and pictures of a page."""
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", text)))


def headings(text: str) -> list[str]:
    """The headings of a page, without the marks of code and links."""
    found = re.findall(r"^#{1,6} +(.+?) *#*$", _FENCED.sub("", text), re.MULTILINE)
    return [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in found]


def words_of_examples(text: str) -> set[str]:
    """The identifiers in the examples and Python blocks of a page."""
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = [block for block in blocks if ">>>" not in block]
    code += [example.source for example in doctest.DocTestParser().get_examples(text)]
    return set(re.findall(r"[A-Za-z_]\w*", "\n".join(code)))
