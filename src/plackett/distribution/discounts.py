"""The value of a place: discounts of metrics and policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_numbers, check_top, to_numpy


def discount_values(discount: Any, places: int, top: int | None = None) -> npt.NDArray[np.float64]:
    """The discounts of the first places, at most `places` of them and `top`; all others have 0.

    Args:
        discount: "dcg" (1 / log2(1 + place)), or a number of at least 0 for each place from the first on.
        places: the length of the longest list.
        top: only the first `top` places count; None: all.
    """
    count = min(places, check_top(top))
    if isinstance(discount, str):
        if discount != "dcg":
            raise ValueError(f'discount must be "dcg", or a number for each place, got {discount!r}')
        return np.asarray(1.0 / np.log2(np.arange(2.0, count + 2.0)))
    values = as_numbers("discount", to_numpy(discount))
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"discount must hold a number for each place from the first on, got shape {values.shape}")
    if not (np.isfinite(values) & (values >= 0.0)).all():
        raise ValueError(f"discount must be finite and at least 0, got {values.min()} to {values.max()}")
    return values[:count]
