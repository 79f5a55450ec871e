"""Multilabel data for experiments: public data sets, generated stand-ins of the same shape, and evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from plackett.data import MULTILABEL_SHAPES, MultilabelData, load_xmc, make_multilabel
from plackett.experiments.datasets import DataFolder
from plackett.lists import IntArray

SHORT_NAMES = {"delicious-1k": "D-1K", "eurlex-4k": "E-4K", "wiki10-31k": "W-31K", "delicious-200k": "D-200K"}
"""The paper's names."""

PLACES = (1, 3, 5, 10)
MEASURES = ("P", "nDCG", "PSP", "PSnDCG")
LABEL_NDCG = "nDCG(labels)"
"""nDCG that counts no labels beyond place min(k, number of the row's labels)."""
_STAND_IN = " stand-in"


def load(name: str, data: DataFolder) -> tuple[MultilabelData, MultilabelData]:
    """Load the training and test rows of a data set, or generate a stand-in such as "wiki10-31k stand-in".

    "wiki10-31k stand-in 1/10" has a tenth of the rows, features and labels.

    >>> load("wiki10-31k stand-in 1/10", DataFolder())[0]
    MultilabelData(1,414 rows, 10,193 features, 3,093 labels)
    """
    if name in SHORT_NAMES:
        train, test = (load_xmc(data.file(name, f"{part}.txt")) for part in ("train", "test"))
        return train, test
    shape, found, share = name.partition(_STAND_IN)
    if shape not in MULTILABEL_SHAPES or not found:
        known = [*SHORT_NAMES, *(f"{shape}{_STAND_IN}" for shape in MULTILABEL_SHAPES)]
        raise ValueError(f"name must be one of {', '.join(known)}, got {name!r}")
    return _generated(shape, int(share.removeprefix(" 1/") or 1))


def usable_data(names: Iterable[str], data: DataFolder) -> list[str]:
    """Select the available data sets, and the stand-ins whose real data set is not available."""
    there = [name for name in names if name in SHORT_NAMES and data.find(name)]
    return [name for name in names if name in there or (_STAND_IN in name and _real(name) not in there)]


def _real(name: str) -> str:
    return name.partition(_STAND_IN)[0]


def short_name(name: str) -> str:
    """
    >>> short_name("wiki10-31k stand-in 1/10")
    'W-31K stand-in 1/10'
    """
    return name.replace(_real(name), SHORT_NAMES[_real(name)])


def _generated(name: str, part: int) -> tuple[MultilabelData, MultilabelData]:
    shape = MULTILABEL_SHAPES[name]
    n_train, n_test, n_features, n_labels = (count // part for count in shape[:4])
    generated = make_multilabel(
        n_train + n_test,
        n_features,
        n_labels,
        labels_per_row=min(shape.labels_per_row, n_labels / 10),
        features_per_row=min(shape.features_per_row, n_features / 10),
        exponent=shape.exponent,
        random_state=0,
    )
    return generated.select(range(n_train)), generated.select(range(n_train, n_train + n_test))


def measure_top_labels(top: IntArray, train: MultilabelData, test: MultilabelData) -> dict[str, list[float]]:
    """Compute `MEASURES` and `LABEL_NDCG` at `PLACES`, in percent. `top` holds the best labels, (rows, at least 10).

    Propensities come from the training rows. Propensity-scored measures divide the total achieved over all rows by the
    total achievable, as in the extreme classification repository.
    """
    from plackett import metrics

    inverse = metrics.inverse_propensity(train.Y)
    found = {
        "P": [metrics.multilabel_precision(top, test.Y, k=k) for k in PLACES],
        "nDCG": [metrics.multilabel_ndcg(top, test.Y, k=k) for k in PLACES],
        LABEL_NDCG: [metrics.multilabel_ndcg(top, test.Y, k=k, depth="labels") for k in PLACES],
        "PSP": [metrics.propensity_scored_precision(top, test.Y, inverse, k=k) for k in PLACES],
        "PSnDCG": [metrics.propensity_scored_ndcg(top, test.Y, inverse, k=k) for k in PLACES],
    }
    return {name: [round(100.0 * float(value), 3) for value in values] for name, values in found.items()}
