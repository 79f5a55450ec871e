"""Errors and warnings of Plackett.

Bad arguments raise `ValueError` or `TypeError`: they name the argument, what was expected and what came.
"""


class PlackettError(Exception):
    """Base of the errors that are not about an argument."""


class MissingDependencyError(PlackettError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: install it with  pip install 'plackett[{extra}]'")


class AccuracyWarning(UserWarning):
    """A result is less accurate than asked for."""
