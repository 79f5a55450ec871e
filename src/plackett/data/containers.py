"""What readers and generators return."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.lists import IntArray


@dataclass(frozen=True)
class RankingData:
    """Lists of items with features and labels, one row an item, the rows of a list next to each other.

    X        features, (items, features)
    y        labels, (items,); higher is better, equal labels are tied
    qid      the list each row belongs to, (items,)
    offsets  list b holds the rows offsets[b] to offsets[b+1] - 1
    ids      an identifier of each item, or None
    """

    X: npt.NDArray[np.floating[Any]]
    y: npt.NDArray[np.floating[Any]]
    qid: IntArray
    offsets: IntArray
    ids: npt.NDArray[Any] | None = None
