"""Check that forked children can do everything promptly, whatever their parent did before. Run it for the table.

Each row is a separate process that does one thing and then forks a child for every thing, in three ways: with
multiprocessing, with joblib's multiprocessing backend, and with os.fork, as a server does that loads its models first.
The child uses the models fitted by the parent, and also fits all models again. The row of a parent that did nothing
shows how long the actions themselves take, with their imports; no other cell may be more than a second above it.
"""

import argparse
import json
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

LISTS, LENGTH = 100, 20
QID = np.repeat(np.arange(LISTS), LENGTH)
TOO_LONG = 300.0  # seconds that count as a hang, even on a busy machine
NOTHING = "nothing"


def _lists() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((len(QID), 10))
    return X, np.clip(np.round(X[:, 0] + rng.standard_normal(len(QID))), 0, 3)


def _boosted(model: Any) -> Any:
    from plackett import BoostedRanker

    X, y = _lists()
    fitted = BoostedRanker(n_estimators=3, n_jobs=2, progress=False).fit(X, y, qid=QID)
    (model or fitted).predict(X)
    return fitted


def _neural(model: Any) -> Any:
    from plackett import NeuralRanker

    X, y = _lists()
    fitted = NeuralRanker(hidden_sizes=(256,), epochs=1, random_state=0, progress=False).fit(X, y, qid=QID)
    (model or fitted).predict(X)
    return fitted


def _extreme(model: Any) -> Any:
    from scipy.sparse import csr_array

    from plackett import ExtremeClassifier

    X, _ = _lists()
    labels = csr_array((np.ones(len(X)), (np.arange(len(X)), np.argmax(X, axis=1) * 50)), (len(X), 500))
    fitted = ExtremeClassifier(hidden_sizes=(64,), epochs=1, random_state=0, progress=False).fit(X, labels)
    (model or fitted).predict_top(X, 5)
    return fitted


def _linear(model: Any) -> Any:
    from plackett import LinearRanker

    X, y = _lists()
    fitted = LinearRanker().fit(X, y, qid=QID)
    (model or fitted).predict(X)
    return fitted


def _coordinate_ascent(model: Any) -> Any:
    from plackett import CoordinateAscentRanker

    X, y = _lists()
    fitted = CoordinateAscentRanker(n_restarts=1, max_sweeps=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one sweep does not converge
        fitted.fit(X, y, qid=QID)
    (model or fitted).predict(X)
    return fitted


def _aggregator(model: Any) -> Any:
    from plackett import RankAggregator

    rng = np.random.default_rng(0)
    fitted = RankAggregator().fit([rng.permutation(30).tolist() for _ in range(500)])
    (model or fitted).predict_log_proba([[0, 1, 2]])
    return fitted


def _likelihood(_: Any) -> None:
    import plackett

    X, y = _lists()
    plackett.partition_derivatives(X[:, 0], y, offsets=np.arange(LISTS + 1) * LENGTH)


def _torch_loss(_: Any) -> None:
    import torch

    from plackett.losses import partition_loss

    X, y = _lists()
    weight = torch.ones(10, 256, dtype=torch.float64, requires_grad=True)
    scores = (torch.as_tensor(X) @ weight).exp().log().sum(dim=1)
    partition_loss(scores.reshape(LISTS, LENGTH), torch.as_tensor(y).reshape(LISTS, LENGTH)).backward()


def _metrics(_: Any) -> None:
    from plackett.metrics import ndcg

    X, y = _lists()
    ndcg(X[:, 0], y, k=10, qid=QID)


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "BoostedRanker": _boosted,
    "NeuralRanker": _neural,
    "ExtremeClassifier": _extreme,
    "LinearRanker": _linear,
    "CoordinateAscentRanker": _coordinate_ascent,
    "RankAggregator": _aggregator,
    "likelihood": _likelihood,
    "torch loss": _torch_loss,
    "metrics": _metrics,
}
if find_spec("torch") is None:
    for needs_torch in ("NeuralRanker", "ExtremeClassifier", "torch loss"):
        del ACTIONS[needs_torch]
MODELS: dict[str, Any] = {}  # fitted by the parent


def act(name: str) -> float:
    """Do one action, with the parent's model if there is one, and return the seconds it took."""
    started = time.monotonic()
    ACTIONS[name](MODELS.get(name))
    return time.monotonic() - started


def _answer(name: str) -> float | str:
    try:
        return act(name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# Ways to fork; each returns the result of `_answer`, or "hangs".


def by_multiprocessing(name: str) -> float | str:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(_answer, (name,)).get(TOO_LONG)
        except multiprocessing.TimeoutError:
            return "hangs"


def by_joblib(name: str) -> float | str:
    import joblib

    with joblib.parallel_config(backend="multiprocessing"):
        try:
            first, _ = joblib.Parallel(n_jobs=2, timeout=TOO_LONG)(joblib.delayed(_answer)(name) for _ in range(2))
        except multiprocessing.TimeoutError:
            return "hangs"
    return first


def by_server(name: str) -> float | str:
    """A worker forked by a server that has loaded its models."""
    receiver, sender = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(sender, pickle.dumps(_answer(name)))
        os._exit(0)
    os.close(sender)
    answered, _, _ = select.select([receiver], [], [], TOO_LONG)
    content = os.read(receiver, 4096) if answered else b""
    os.close(receiver)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    return pickle.loads(content) if content else "hangs"  # noqa: S301 - our own


WAYS = {"multiprocessing": by_multiprocessing, "joblib": by_joblib, "server": by_server}


def after(parent: list[str], children: list[str]) -> Iterator[tuple[str, str, float | str]]:
    """Do the parent's actions, then fork for the children's; yield the way, the action and the outcome."""
    for name in parent:
        MODELS[name] = ACTIONS[name](None)
    for way, fork in WAYS.items():
        for name in children:
            yield way, name, fork(name)


def run_apart(parent: list[str], children: list[str], *, old_openmp: bool = False) -> list[Any]:
    """Run `after` in a separate process. With `old_openmp`, its OpenMP cannot end threads, as in GCC 8."""
    command = [sys.executable, __file__, "--here", "--parent", *parent, "--children", *children]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}  # more than one thread on any machine
    done = subprocess.run(  # noqa: S603 - our own interpreter
        command + ["--old-openmp"] * old_openmp, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", nargs="*", choices=ACTIONS)
    parser.add_argument("--children", nargs="+", choices=ACTIONS, default=list(ACTIONS))
    parser.add_argument("--old-openmp", action="store_true")
    parser.add_argument("--here", action="store_true", help="in this process; prints JSON")
    arguments = parser.parse_args()
    if arguments.here:
        if arguments.old_openmp:
            from plackett import threads

            threads._end_threads_of = lambda _: False
        print(json.dumps(list(after(arguments.parent, arguments.children))), flush=True)
        os._exit(0)  # do not wait for hanging children
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    from measure import report, save
    from rich.console import Console

    for name in ACTIONS:
        act(name)  # fill the kernel cache
    children = arguments.children
    found = {NOTHING: run_apart([], children)}
    found |= {name: run_apart([name], children) for name in arguments.parent or ACTIONS}
    console = Console(width=160)
    rows = [[parent, *(_cell(outcomes, child) for child in children)] for parent, outcomes in found.items()]
    report("The parent did (rows), the child does (columns): the slowest of three ways", ["", *children], rows, console)
    wrong = [outcome for outcomes in found.values() for outcome in outcomes if isinstance(outcome[2], str)]
    excess = max(
        _seconds(outcomes, child) - _seconds(found[NOTHING], child) for outcomes in found.values() for child in children
    )
    console.print(f"at most {excess:.2f} s longer than after {NOTHING}")
    save({"seconds": found, "excess": excess}, "forks", console)
    sys.exit(bool(wrong) or excess > 1.0)


def _seconds(outcomes: list[Any], child: str) -> float:
    """The time of the slowest way to do an action; a failure counts as a hang."""
    return max(TOO_LONG if isinstance(s, str) else s for _, action, s in outcomes if action == child)


def _cell(outcomes: list[Any], child: str) -> str:
    wrong = [problem for _, action, problem in outcomes if action == child and isinstance(problem, str)]
    return ", ".join(wrong) if wrong else f"{_seconds(outcomes, child):.2f} s"


if __name__ == "__main__":
    main()
