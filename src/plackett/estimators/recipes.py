"""Settings of `ExtremeClassifier` that follow the effort and the size of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plackett.arguments import check_choice

_WIDE = 200_000  # features and labels, beyond which layers are narrower
_ROWS = 20_000  # beyond which there are fewer epochs


@dataclass(frozen=True)
class _Effort:
    units: int
    epochs: int
    ensemble: int
    rows_at_once: int
    """See `plackett.neural.ridge_paths.fit_kernel_path`."""


EFFORTS = {
    "fast": _Effort(512, 6, 1, 8_192),
    "default": _Effort(1024, 20, 2, 16_384),
    "best": _Effort(1024, 20, 5, 16_384),
}


def make_recipe(effort: Any, rows: int, features: int, labels: int) -> dict[str, Any]:
    """hidden_sizes, epochs and ensemble.

    Weights and optimiser state take 12 bytes x units x (features + labels): units are halved until there are at most
    200,000 x 1,024 weights, but not below 128. Beyond 20,000 rows, epochs fall with the square root of the rows, to a
    quarter at most, since every epoch then has more steps.

    >>> make_recipe("default", 15_000, 5_000, 4_000)
    {'hidden_sizes': [1024], 'epochs': 20, 'ensemble': 2}
    >>> make_recipe("default", 200_000, 800_000, 200_000)
    {'hidden_sizes': [128], 'epochs': 6, 'ensemble': 2}
    """
    check_choice("effort", effort, tuple(EFFORTS))
    chosen = EFFORTS[effort]
    units = chosen.units
    while units > 128 and units * (features + labels) > _WIDE * 1024:
        units //= 2
    share = max(0.25, min(1.0, (_ROWS / max(1, rows)) ** 0.5))
    return {"hidden_sizes": [units], "epochs": max(1, round(chosen.epochs * share)), "ensemble": chosen.ensemble}
