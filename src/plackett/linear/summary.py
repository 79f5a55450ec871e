"""Coefficients with standard errors, as arrays and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from plackett.linear.features import Floats


@dataclass(frozen=True, eq=False)
class CoefficientSummary:
    """One entry per feature in every column; prints as a table.

    z = coefficient / standard error; p is two-sided, by the normal distribution. Infinite standard errors belong to
    coefficients that the data do not determine, NaN to fits that have none; `note` says why.
    """

    names: Sequence[str]
    coefficients: Floats
    standard_errors: Floats
    level: float
    note: str

    @property
    def z_values(self) -> Floats:
        return self.coefficients / self.standard_errors

    @property
    def p_values(self) -> Floats:
        return np.asarray(2.0 * ndtr(-np.abs(self.z_values)))

    @property
    def intervals(self) -> Floats:
        """(features, 2)"""
        reach = ndtri(0.5 + 0.5 * self.level) * self.standard_errors
        return np.column_stack((self.coefficients - reach, self.coefficients + reach))

    @property
    def columns(self) -> list[str]:
        return ["feature", "coefficient", "standard error", "z", "p", f"{self.level:.3g} interval"]

    def rows(self) -> list[list[str]]:
        """The cells of the table."""
        numbers = zip(
            self.names,
            self.coefficients,
            self.standard_errors,
            self.z_values,
            self.p_values,
            self.intervals,
            strict=True,
        )
        return [
            [name, f"{b:.4g}", f"{error:.3g}", f"{z:.2f}", f"{p:.2g}", f"{low:.4g} to {high:.4g}"]
            for name, b, error, z, p, (low, high) in numbers
        ]

    def __str__(self) -> str:
        table = [self.columns, *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        lines = []
        for row in table:
            name, *numbers = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append("  ".join([name.strip().ljust(widths[0]), *numbers]))
        return "\n".join([*lines, self.note])
