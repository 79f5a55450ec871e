"""The public names, as the sources of the package list and define them; nothing is imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def file_of(module: str) -> Path | None:
    """The source of a module or package, if it exists."""
    path = ROOT.joinpath("src", *module.split("."))
    return next((found for found in (path / "__init__.py", path.with_suffix(".py")) if found.exists()), None)


def listed_names(path: Path) -> list[str]:
    """`__all__` of a module."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            try:
                return sorted(ast.literal_eval(node.value), key=str.lower)
            except ValueError:
                break
    raise ValueError(f"{path}: expected __all__ as a list of texts, which the reference reads without running it")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those under a condition such as TYPE_CHECKING."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        else:
            yield node


def defined_in(module: str, name: str) -> str | None:
    """Where a name of a module is defined: followed through imports within the package, None if it is nowhere."""
    if file_of(f"{module}.{name}"):
        return f"{module}.{name}"
    path = file_of(module)
    for node in _statements(ast.parse(path.read_text()).body if path else []):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == name for target in node.targets):
            return module
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
            return module
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    own = node.module.split(".")[0] == module.split(".")[0]
                    return defined_in(node.module, alias.name) if own else node.module
    return None
