"""Demonstration: how the treatment of ties biases the learned coefficients.

Lists are simulated from Plackett-Luce with a known linear score and cut into tiers. A linear score is then fitted by
maximum likelihood, once with the exact likelihood of the tiers and once with each common approximation.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from plackett.data import RankingData, make_tiered_lists
from plackett.likelihood import PartitionDerivatives, approximate_derivatives, partition_derivatives

TRUTH = (1.0, -0.5)

Likelihood = Callable[..., PartitionDerivatives]


@dataclass(frozen=True)
class Method:
    """A way to treat ties; `likelihood(scores, labels, offsets=...)` returns the value and its derivatives."""

    name: str
    likelihood: Likelihood


def methods(seed: int) -> list[Method]:
    """Return the exact likelihood and four approximations. The seed determines how ties are broken."""
    random = partial(approximate_derivatives, ties="random", random_state=seed)
    return [
        Method("exact tiers", partition_derivatives),
        Method("ties at random, bottom unordered", partial(random, bottom="unordered")),
        Method("Efron, bottom unordered", partial(approximate_derivatives, ties="efron")),
        Method("Breslow / lower bound, bottom unordered", partial(approximate_derivatives, ties="breslow")),
        Method("ties at random, all tiers", partial(random, bottom="ordered")),
    ]


def fit_linear(data: RankingData, likelihood: Likelihood) -> npt.NDArray[np.float64]:
    """Return the coefficients that maximise the log-likelihood of the scores X @ coefficients."""

    def negative(coefficients: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        value, gradient, _ = likelihood(data.X @ coefficients, data.y, offsets=data.offsets)
        lists = len(data.offsets) - 1
        return -float(value.sum()) / lists, -(data.X.T @ gradient) / lists

    found = minimize(negative, np.zeros(data.X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-7})
    if float(np.abs(found.jac).max()) > 1e-5:
        raise RuntimeError(f"the fit did not converge: {found.message}")
    return np.asarray(found.x)


def fits(seeds: Sequence[int]) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
    """Simulate and fit; yield (method name, coefficients) one at a time, so that a caller can show progress."""
    for seed in seeds:
        data = make_tiered_lists(300, tier_sizes=(1, 3, 6, 10), coefficients=TRUTH, random_state=seed)
        for method in methods(seed):
            yield method.name, fit_linear(data, method.likelihood)


def fit_all(
    seeds: Sequence[int], track: Callable[[Iterator[Any], int], Iterable[Any]] = lambda steps, _: steps
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the coefficients of each method, one row per seed. `track(steps, total)` may show progress."""
    rows: dict[str, list[npt.NDArray[np.float64]]] = {}
    for name, coefficients in track(fits(seeds), len(seeds) * len(methods(0))):
        rows.setdefault(name, []).append(coefficients)
    return {name: np.stack(values) for name, values in rows.items()}
