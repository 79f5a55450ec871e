"""Heavy load: many threads at once, many fits in one process."""

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import fuzz
import numpy as np
import pytest

import plackett
from plackett.estimators import ExtremeClassifier, NeuralRanker, RankAggregator

THREADS = 16
RNG = np.random.default_rng(11)
BLOCKS = [RNG.normal(size=(int(rows), 3)) for rows in RNG.integers(1, 60, 4 * THREADS)]
RANKINGS = [[list(RNG.permutation(["a", "b", "c"])[: RNG.integers(2, 4)])] for _ in range(4 * THREADS)]


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: make() for name, make in fuzz.MODELS.items()}


def all_at_once(calls: list[Any]) -> list[Any]:
    """The results of calls that 16 threads start together, each with its share."""
    together = Barrier(THREADS)

    def run(share: list[Any]) -> list[Any]:
        together.wait()
        return [call() for call in share]

    with ThreadPoolExecutor(THREADS) as threads:
        shares = list(threads.map(run, [calls[i::THREADS] for i in range(THREADS)]))
    return [shares[i % THREADS][i // THREADS] for i in range(len(calls))]


def calls_of(model: Any) -> list[Any]:
    if isinstance(model, RankAggregator):
        return [lambda rankings=rankings: model.predict_log_proba(rankings) for rankings in RANKINGS]
    lists = isinstance(model, NeuralRanker)
    calls: list[Any] = [lambda X=X: model.predict(X, group=[len(X)]) if lists else model.predict(X) for X in BLOCKS]
    if isinstance(model, ExtremeClassifier):
        calls += [lambda X=X: np.hstack(model.predict_top(X, 3)) for X in BLOCKS[:THREADS]]
    return calls


@pytest.mark.parametrize("name", fuzz.MODELS)
def test_predictions_of_many_threads_are_correct(name: str, models: dict[str, Any]) -> None:
    calls = calls_of(models[name])
    expected = [call() for call in calls]
    assert len({result.tobytes() for result in expected}) > 3  # so that a mix-up would show
    for found, wanted in zip(all_at_once(calls), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_concurrent_predictions_of_all_models_are_correct(models: dict[str, Any]) -> None:
    calls = [call for model in models.values() for call in calls_of(model)[:THREADS]]
    expected = [call() for call in calls]
    for found, wanted in zip(all_at_once(calls), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_likelihoods_of_many_threads_are_correct() -> None:
    calls = [lambda X=X: plackett.partition_derivatives(X[:, 0], np.arange(len(X)) // 3) for X in BLOCKS]
    expected = [call() for call in calls]
    for found, wanted in zip(all_at_once(calls), expected, strict=True):
        for part, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(part, other)


def test_fits_of_many_threads_are_correct() -> None:
    """Concurrent training runs give the same results as separate ones."""
    names = list(fuzz.MODELS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = [lambda name=name: fuzz.use(fuzz.MODELS[name]()) for name in names for _ in range(2)]
        expected = [call() for call in calls]
        found = all_at_once(calls + calls[: THREADS - len(calls) % THREADS])[: len(calls)]
    for result, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_many_fits_do_not_leak_memory() -> None:
    """A short version of `make soak`."""
    script = Path(__file__).parents[2] / "benchmarks" / "soak.py"
    run = subprocess.run([sys.executable, str(script), "--fits", "100"], capture_output=True, text=True, check=False)  # noqa: S603
    assert run.returncode == 0, run.stdout + run.stderr
    assert "after the warm-up, 70 fits added" in run.stdout
