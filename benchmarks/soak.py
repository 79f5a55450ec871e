"""Run many small fits in one process and check that memory does not grow.

    python benchmarks/soak.py                 10,000 fits, a table, JSON in benchmarks/results
    python benchmarks/soak.py --fits 300      a short run that writes nothing

Kinds of fits alternate and sizes vary, so that anything kept per shape or per object adds up. Memory is measured ten
times, after a full garbage collection. The first part of the run fills caches and pools and does not count.
"""

import argparse
import ctypes
import gc
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import report, save
from rich.console import Console

import plackett
from plackett.estimators import BoostedRanker, ExtremeClassifier, LinearRanker, NeuralRanker, RankAggregator
from plackett.experiments.timing import resident

_WARM_UP = 0.3  # share of all fits
_LOOKS = 10
_OBJECTS = 400  # more objects than this are a leak, whatever the number of fits
_BYTES_PER_FIT = 2048
_BYTES_OF_POOLS = 8 << 20  # allocators may vary this much between measurements


def _lists(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    group = rng.integers(3, 9, rng.integers(3, 8))
    rows = int(group.sum())
    return rng.normal(size=(rows, rng.integers(2, 6))), rng.integers(0, 3, rows), group


def _rank(model: Any) -> Callable[[np.random.Generator], Any]:
    def run(rng: np.random.Generator) -> Any:
        X, y, group = _lists(rng)
        y[:2] = 0, 1
        return model().fit(X, y, group=group).predict(X)

    return run


def _aggregate(rng: np.random.Generator) -> Any:
    ballots = [rng.permutation(6)[: rng.integers(2, 7)].tolist() for _ in range(rng.integers(4, 12))]
    return RankAggregator(prior=0.5).fit(ballots).worths_


def _classify(rng: np.random.Generator) -> Any:
    labels = int(rng.integers(4, 9))
    X = rng.normal(size=(20, 4))
    model = ExtremeClassifier(hidden_sizes=(4,), epochs=1, progress=False, random_state=0)
    return model.fit(X, rng.random((20, labels)) < 0.4).predict(X)


def _likelihood(rng: np.random.Generator) -> Any:
    X, y, group = _lists(rng)
    offsets = np.concatenate([[0], np.cumsum(group)])
    return plackett.partition_derivatives(X[:, 0], y, offsets=offsets)


KINDS: dict[str, Callable[[np.random.Generator], Any]] = {
    "LinearRanker": _rank(lambda: LinearRanker(l2=1.0)),
    "BoostedRanker": _rank(lambda: BoostedRanker(n_estimators=2, num_leaves=4, min_child_samples=2, progress=False)),
    "RankAggregator": _aggregate,
    "partition_derivatives": _likelihood,
    "NeuralRanker": _rank(lambda: NeuralRanker(hidden_sizes=(4,), epochs=1, progress=False, random_state=0)),
    "ExtremeClassifier": _classify,
}


def _settled() -> tuple[int, int]:
    """Free what can be freed; return the resident bytes and the number of Python objects."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return resident(), len(gc.get_objects())


def soak(fits: int) -> list[dict[str, float]]:
    """Run the fits; return the memory use at ten points of the run."""
    rng = np.random.default_rng(0)
    kinds = list(KINDS.values())
    looks, start = [], time.perf_counter()
    for done in range(1, fits + 1):
        kinds[done % len(kinds)](rng)
        if done % (fits // _LOOKS) == 0:
            memory, objects = _settled()
            looks.append(
                {"fits": done, "MB": memory / 2**20, "objects": objects, "seconds": time.perf_counter() - start}
            )
    return looks


def growth(looks: list[dict[str, float]]) -> dict[str, float]:
    """Return the growth after the warm-up."""
    first, last = next(look for look in looks if look["fits"] >= _WARM_UP * looks[-1]["fits"]), looks[-1]
    fits = last["fits"] - first["fits"]
    return {
        "fits": fits,
        "bytes": (last["MB"] - first["MB"]) * 2**20,
        "objects": last["objects"] - first["objects"],
        "bytes allowed": _BYTES_OF_POOLS + _BYTES_PER_FIT * fits,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=10_000)
    fits = parser.parse_args().fits
    console = Console()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small data sets do not always determine a model
        looks = soak(fits)
    found = growth(looks)
    rows = [
        [f"{look['fits']:,}", f"{look['MB']:.1f}", f"{look['objects']:,}", f"{look['seconds']:.0f}"] for look in looks
    ]
    report(f"Memory after fits of {', '.join(KINDS)} in turn", ["fits", "MB", "objects", "seconds"], rows, console)
    added = f"{found['bytes'] / 2**20:.2f} MB and {found['objects']:,} objects"
    console.print(f"after the warm-up, {found['fits']:,} fits added {added}")
    if fits >= 10_000:
        save({"looks": looks, "growth": found}, "soak", console)
    if found["bytes"] > found["bytes allowed"] or found["objects"] > _OBJECTS:
        sys.exit("memory grows")


if __name__ == "__main__":
    main()
