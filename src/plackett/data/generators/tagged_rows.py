"""Extreme multi-label data: few labels per row out of very many, with power-law frequencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_count, check_kind, check_range
from plackett.data.containers import MultilabelData
from plackett.lists import IntArray, offsets_from_sizes
from plackett.threads import run_over_ranges

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_SIGNATURE = 8  # features that indicate a label
_NANOSECONDS = 50  # to draw one label or feature


class MultilabelShape(NamedTuple):
    """The size of a data set. `labels_per_row` and `features_per_row` are means."""

    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    labels_per_row: float
    features_per_row: float
    exponent: float


MULTILABEL_SHAPES = {
    "wiki10-31k": MultilabelShape(14_146, 6_616, 101_938, 30_938, 18.64, 670.0, 1.0),
    "delicious-200k": MultilabelShape(196_606, 100_095, 782_585, 205_443, 75.54, 300.0, 0.75),
}
"""Wiki10-31K and Delicious-200K as in table 3 of Ma et al. (2021), which does not give the last two numbers. With these
exponents the most frequent label is in about 65 % and 45 % of rows."""


def make_multilabel(
    n_rows: int,
    n_features: int,
    n_labels: int,
    *,
    labels_per_row: float,
    features_per_row: float,
    exponent: float = 1.0,
    signal: float = 0.1,
    random_state: int | np.random.Generator | None = None,
) -> MultilabelData:
    """Simulate rows like tagged texts: labels with power-law frequencies, and words that depend on them.

    **Sizes.** A row has 1 + Poisson((mean - 1) G) labels, G ~ Gamma(shape 2, mean 1), with the given mean, but at most
    n_labels / 2. The number of features is drawn the same way.

    **Labels.** They are the first places of a draw from Plackett-Luce over all labels, where the r-th most frequent
    has a worth proportional to the integral of x^-exponent from r to r + 1, that is, about r^-exponent (Jain et al.
    2016). The order of labels by frequency is random.

    **Features.** A row is a text: words are drawn until it has enough distinct ones. With probability `signal` a word
    comes from the labels: one of the row's labels is chosen, then one of the 8 features that are drawn once for that
    label. Otherwise it is background, drawn from all features by a power law with exponent 1. A word that occurs n
    times in the row and in f rows has the value (1 + log n) (1 + log((1 + rows) / (1 + f))), and every row is scaled
    to length 1.

    >>> data = make_multilabel(1000, 5000, 300, labels_per_row=4, features_per_row=40, random_state=0)
    >>> data
    MultilabelData(1,000 rows, 5,000 features, 300 labels)
    >>> round(data.Y.nnz / len(data), 1), round(data.X.nnz / len(data), 1)
    (4.0, 40.5)
    """
    # numba is slow to import, and no other generator needs it.
    from plackett.data.generators.tagged_row_kernels import draw_rows, weigh_rows

    check_count("n_rows", n_rows, 0)
    check_count("n_features", n_features, 10, 2**31 - 1)
    check_count("n_labels", n_labels, 10, 2**31 - 1)
    # Beyond a tenth, too many draws would hit labels that the row already has.
    check_range("labels_per_row", labels_per_row, 1.0, n_labels / 10)
    check_range("features_per_row", features_per_row, 1.0, n_features / 10)
    check_range("exponent", exponent, 0.0, 2.0)
    check_range("signal", signal, 0.0, 0.9)  # signatures alone could not fill a row
    generator = np.random.default_rng(random_state)
    label_offsets = _offsets(n_rows, labels_per_row, n_labels // 2, generator)
    feature_offsets = _offsets(n_rows, features_per_row, n_features // 2, generator)
    seeds = generator.integers(2**64, size=n_rows, dtype=np.uint64)
    label_of_rank = generator.permutation(np.arange(n_labels, dtype=np.int32))
    feature_of_rank = generator.permutation(np.arange(n_features, dtype=np.int32))
    signatures = generator.integers(n_features, size=(n_labels, _SIGNATURE), dtype=np.int32)
    labels = np.empty(label_offsets[-1], np.int32)
    features = np.empty(feature_offsets[-1], np.int32)
    values = np.empty(feature_offsets[-1], np.float32)

    def draw(first: int, last: int) -> int:
        return int(
            draw_rows(
                first, last, seeds, label_offsets, feature_offsets, label_of_rank, feature_of_rank, signatures,
                float(exponent), float(signal), labels, features, values,
            )
        )  # fmt: skip

    run_over_ranges(draw, (label_offsets + feature_offsets) * _NANOSECONDS)
    rarity = _inverse_document_frequency(features, n_rows, n_features)
    run_over_ranges(
        lambda first, last: int(weigh_rows(first, last, feature_offsets, features, values, rarity)),
        feature_offsets * _NANOSECONDS,
    )
    return MultilabelData(
        X=_sorted_rows(values, features, feature_offsets, n_features),
        Y=_sorted_rows(np.ones(len(labels), np.float32), labels, label_offsets, n_labels),
    )


def make_multilabel_like(
    shape: str, *, random_state: int | np.random.Generator | None = None
) -> tuple[MultilabelData, MultilabelData]:
    """Simulate training and test data with the size of a public data set, one of `MULTILABEL_SHAPES`.

    Both come from one call of `make_multilabel`, so they share labels, features and frequencies.

    >>> MULTILABEL_SHAPES["wiki10-31k"].n_labels
    30938
    """
    check_kind("shape", shape, str)
    if shape not in MULTILABEL_SHAPES:
        raise ValueError(f"shape must be one of {', '.join(MULTILABEL_SHAPES)}, got {shape!r}")
    n_train, n_test, n_features, n_labels, labels_per_row, features_per_row, exponent = MULTILABEL_SHAPES[shape]
    data = make_multilabel(
        n_train + n_test,
        n_features,
        n_labels,
        labels_per_row=labels_per_row,
        features_per_row=features_per_row,
        exponent=exponent,
        random_state=random_state,
    )
    return data.select(np.arange(n_train)), data.select(np.arange(n_train, n_train + n_test))


def _offsets(n_rows: int, mean: float, most: int, generator: np.random.Generator) -> IntArray:
    """Offsets of rows of 1 + Poisson((mean - 1) G) entries, at most `most`."""
    sizes = 1 + generator.poisson((mean - 1.0) * generator.gamma(2.0, 0.5, n_rows))
    return offsets_from_sizes(np.minimum(sizes, most))


def _sorted_rows(
    values: npt.NDArray[np.float32], columns: npt.NDArray[np.int32], offsets: IntArray, n_columns: int
) -> csr_array:
    from scipy.sparse import csr_array, get_index_dtype

    # scipy converts offsets and columns to the larger of their two types.
    narrow = offsets.astype(get_index_dtype(maxval=len(values)))
    matrix = csr_array((values, columns, narrow), shape=(len(offsets) - 1, n_columns))
    matrix.sort_indices()
    return matrix


def _inverse_document_frequency(
    features: npt.NDArray[np.int32], n_rows: int, n_features: int
) -> npt.NDArray[np.float32]:
    rows_with = np.bincount(features, minlength=n_features)
    rarity: npt.NDArray[np.float64] = 1.0 + np.log((1.0 + n_rows) / (1.0 + rows_with))
    return rarity.astype(np.float32)
