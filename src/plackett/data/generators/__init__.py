"""Simulated data with known truth.

Every generator takes `random_state`, a seed or numpy generator: equal seeds give equal data for any number of threads,
and None draws a new seed. A generator that draws the truth itself returns it as its second value; if the truth is an
argument (coefficients, grades), it is not returned again.

Start with `rankings` (tiered lists and ballots). `graded` has lists with grades and features, `simulated_clicks` turns
grades into clicks, `tagged_rows` has rows with few of many labels, drawn by `tagged_row_kernels`. May import the
containers of `data` and the foundation; never torch.
"""

from plackett.data.generators.graded import make_graded_lists
from plackett.data.generators.rankings import make_partitions, make_tiered_lists
from plackett.data.generators.simulated_clicks import ClickTruth, make_clicks
from plackett.data.generators.tagged_rows import (
    MULTILABEL_SHAPES,
    MultilabelShape,
    make_multilabel,
    make_multilabel_like,
)

__all__ = [
    "MULTILABEL_SHAPES",
    "ClickTruth",
    "MultilabelShape",
    "make_clicks",
    "make_graded_lists",
    "make_multilabel",
    "make_multilabel_like",
    "make_partitions",
    "make_tiered_lists",
]
