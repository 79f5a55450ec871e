"""Simulated data with known truth.

All take `random_state`, a seed or numpy generator: equal seeds give equal data, whatever the number of threads. None
draws a new seed. A generator that draws the truth itself returns it as its second value; where the truth is an argument
(coefficients, grades), it is not returned again.
"""

from plackett.data.generators.clicks import make_clicks
from plackett.data.generators.graded import make_graded_lists
from plackett.data.generators.multilabel import (
    MULTILABEL_SHAPES,
    MultilabelShape,
    make_multilabel,
    make_multilabel_like,
)
from plackett.data.generators.rankings import make_partitions, make_tiered_lists

__all__ = [
    "MULTILABEL_SHAPES",
    "MultilabelShape",
    "make_clicks",
    "make_graded_lists",
    "make_multilabel",
    "make_multilabel_like",
    "make_partitions",
    "make_tiered_lists",
]
