"""Hypothesis strategies for tiered lists."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

scores_near_zero = st.floats(-5.0, 5.0, allow_nan=False)
scores_far_apart = st.one_of(st.floats(-700.0, 700.0, allow_nan=False), scores_near_zero)
labels = st.one_of(st.integers(0, 4).map(float), st.sampled_from([-1.5, 0.0, 0.25, 31.0, 1e9]))


@st.composite
def tiered_list(draw: Any, most: int = 7, least: int = 1, scores: Any = scores_near_zero) -> tuple[Any, Any]:
    """Scores and labels of one list."""
    n = draw(st.integers(least, most))
    return (
        np.array(draw(st.lists(scores, min_size=n, max_size=n))),
        np.array(draw(st.lists(labels, min_size=n, max_size=n))),
    )


@st.composite
def ragged_lists(
    draw: Any, most_lists: int = 5, most: int = 12, scores: Any = scores_far_apart
) -> tuple[Any, Any, Any]:
    """Flat scores, labels and offsets of several lists, some of them empty."""
    sizes = draw(st.lists(st.integers(0, most), min_size=1, max_size=most_lists))
    n = sum(sizes)
    return (
        np.array(draw(st.lists(scores, min_size=n, max_size=n)), np.float64),
        np.array(draw(st.lists(labels, min_size=n, max_size=n)), np.float64),
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
    )
