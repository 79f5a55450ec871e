"""Sums over all orders, by the set of items left."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Entropy and divergence sum over all 2^N sets of items that can be left; 4096 sets take milliseconds per list.
MOST_ITEMS_EXACT = 12


@lru_cache(maxsize=MOST_ITEMS_EXACT)
def _subsets(items: int) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """For each size from 1: the subsets' members, and for each member the number of the subset without it.

    Both (subsets, size); subsets of a size are numbered in lexicographic order.
    """
    layers = []
    number: dict[tuple[int, ...], int] = {(): 0}
    for size in range(1, items + 1):
        subsets = list(itertools.combinations(range(items), size))
        without = [[number[s[:j] + s[j + 1 :]] for j in range(size)] for s in subsets]
        layers.append((np.array(subsets, np.int64), np.array(without, np.int64)))
        number = {s: n for n, s in enumerate(subsets)}
    return layers


def expected_cost_of_choices(scores: Tensor, cost: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """E[sum over places of cost(choice)], by V(T) = sum_{i in T} p_i (cost_i(T) + V(T - i)). O(N 2^N).

    `cost` takes log p and the members of all subsets of a size, (..., subsets, size) and (subsets, size).
    """
    value = scores.new_zeros(*scores.shape[:-1], 1)
    for members, without in _subsets(scores.shape[-1]):
        items = torch.as_tensor(members, device=scores.device)
        log_p = torch.log_softmax(scores[..., items], -1)
        after = value[..., torch.as_tensor(without, device=scores.device)]
        value = (log_p.exp() * (cost(log_p, items) + after)).sum(-1)
    return value[..., 0]
