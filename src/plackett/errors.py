"""Errors and warnings of Plackett.

Bad arguments raise `ValueError` or `TypeError`: the message names the argument, what was expected and what was given.
"""

from collections.abc import Sequence
from typing import Any

__all__ = ["AccuracyWarning", "DataError", "MissingDependencyError", "NoMaximumError", "PlackettError"]


class PlackettError(Exception):
    """Base class of errors that are not about an argument."""


class MissingDependencyError(PlackettError, ImportError):
    """A required optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: install it with  pip install 'plackett[{extra}]'")


class NoMaximumError(PlackettError, ValueError):
    """The likelihood has no maximum, or no unique one. It would have one without `items`."""

    def __init__(self, reason: str, items: Sequence[Any] = ()) -> None:
        self.items = list(items)
        super().__init__(reason)


class AccuracyWarning(UserWarning):
    """A result is less accurate than requested."""


class DataError(PlackettError, ValueError):
    """A file or table is malformed. The message gives the location, the problem, the text there, and a remedy.

    `file`, `line` (from 1) and `text` are attributes, None if they do not apply.
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
