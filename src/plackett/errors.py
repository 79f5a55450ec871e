"""Errors and warnings of Plackett.

Bad arguments raise `ValueError` or `TypeError`: they name the argument, what was expected and what came.
"""

from collections.abc import Sequence
from typing import Any


class PlackettError(Exception):
    """Base of the errors that are not about an argument."""


class MissingDependencyError(PlackettError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: install it with  pip install 'plackett[{extra}]'")


class NoMaximumError(PlackettError, ValueError):
    """The likelihood has no maximum, or not a single one. `items` are those to leave out for it to have one."""

    def __init__(self, reason: str, items: Sequence[Any] = ()) -> None:
        self.items = list(items)
        super().__init__(reason)


class AccuracyWarning(UserWarning):
    """A result is less accurate than asked for."""


class DataError(PlackettError, ValueError):
    """A file or table is not what it should be. The message says where, what stands there, and what to do.

    `file`, `line` (from 1) and `text` are kept as attributes, None where they do not apply.
    """

    def __init__(
        self, problem: str, *, file: str, line: int | None = None, text: str | None = None, remedy: str | None = None
    ) -> None:
        self.file, self.line, self.text = file, line, text
        place = file if line is None else f"{file}, line {line:,}"
        shown = "" if text is None else f": {_shorten(text)!r}"
        super().__init__(f"{place}: {problem}{shown}" + (f". {remedy}" if remedy else ""))


def _shorten(text: str, longest: int = 80) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."
