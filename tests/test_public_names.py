"""The public line: users may import what `plackett.__all__` and the `__all__` of its public packages list."""

import ast
import doctest
import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from gallery_page import gallery_page
from markdown_text import words_of_examples

import plackett

ROOT = Path(__file__).parents[1]
PACKAGES = {
    name: module for name in plackett.__all__ if isinstance(module := getattr(plackett, name), ModuleType)
}  # fmt: skip
NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


@NEEDS_TORCH
@pytest.mark.parametrize("name", PACKAGES)
def test_public_packages_list_their_names(name):
    module = PACKAGES[name]
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    for one in module.__all__:
        found = getattr(module, one)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), f"plackett.{name}.{one} has no docstring"
            assert not found.__module__.startswith("plackett") or not one.startswith("_")


@NEEDS_TORCH
def test_public_names_at_the_top_are_those_of_packages():
    for name in plackett.__all__:
        assert getattr(plackett, name) is not None


def docstrings(found):
    """The docstring of a name, and of the public members of a class."""
    yield inspect.getdoc(found) or ""
    if inspect.isclass(found):
        for name, member in inspect.getmembers(found):
            if not name.startswith("_"):
                yield inspect.getdoc(member) or ""


@NEEDS_TORCH
def test_every_public_name_has_an_example():
    """In its docstring, or on a page to which the reference then links."""
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    pages.append(gallery_page(ROOT / "examples", ROOT / "docs" / "gallery"))
    used = set().union(*map(words_of_examples, pages))
    names = {name: getattr(plackett, name) for name in plackett.__all__ if name not in PACKAGES}
    for package, module in PACKAGES.items():
        names |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    without = [
        name
        for name, found in names.items()
        if name.rpartition(".")[2] not in used
        and not isinstance(found, ModuleType)
        and not any(">>>" in text for text in docstrings(found))
    ]
    assert without == []


def sources():
    """Python that users read: examples, and the code blocks of pages."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text()
    parser = doctest.DocTestParser()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        plain = [block for block in blocks if not block.lstrip().startswith(">>>")]
        yield path.name, "".join(one.source for one in parser.get_examples(text))
        for number, block in enumerate(plain):
            yield f"{path.name}, block {number}", block


def names_used(code):
    """(module, name) of everything imported from the package, and of attributes `plackett.package.name`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "plackett":
            for alias in node.names:
                yield node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("plackett."):
                    yield alias.name, None
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute)
            and isinstance(node.value.value, ast.Name)
            and node.value.value.id == "plackett"
        ):
            yield f"plackett.{node.value.attr}", node.attr


@NEEDS_TORCH
@pytest.mark.parametrize(("where", "code"), [pytest.param(*one, id=one[0]) for one in sources()])
def test_examples_use_public_names_only(where, code):
    for module, name in names_used(code):
        owner = plackett
        for part in [*module.split(".")[1:], *([] if name is None else [name])]:
            if not isinstance(owner, ModuleType):
                break  # an attribute of a public class
            assert part in owner.__all__, f"{where} uses {module}.{name}, and {part} is private"
            owner = getattr(owner, part)


PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


@NEEDS_TORCH
@pytest.mark.parametrize("page", PAGES)
def test_pages_name_public_names_only(page):
    """Private modules are named by their files."""
    for name in re.findall(r"`plackett\.([a-z]\w*(?:\.\w+)*)\b", (ROOT / page).read_text()):
        first, *rest = name.split(".")
        if name in {"json", "losses.name_loss"}:  # a file of saved models, and a placeholder
            continue
        assert first in plackett.__all__, f"plackett.{name} is private"
        if rest and first in PACKAGES:
            assert rest[0] in PACKAGES[first].__all__, f"plackett.{name} is private"
