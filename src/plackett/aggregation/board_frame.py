"""A fitted model as a table of pandas or polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plackett.arguments import check_choice
from plackett.errors import MissingDependencyError

LIBRARIES = ("pandas", "polars")


def make_frame(columns: Mapping[str, Sequence[Any]], library: str) -> Any:
    """The columns as a DataFrame of the library."""
    check_choice("library", library, LIBRARIES)
    try:
        if library == "polars":
            import polars

            return polars.DataFrame(dict(columns), strict=False)
        import pandas

        return pandas.DataFrame(dict(columns))
    except ImportError:
        raise MissingDependencyError(library, "files", "to_frame()") from None
