"""Kernels compiled ahead of time: no entry point compiles anything afterwards."""

import subprocess
import sys

import pytest

import plackett
from plackett import ahead_of_time

pytest.importorskip("torch")
pytest.importorskip("lightgbm")

_ENTRY_POINTS = """
import io
import numpy as np
import torch
from numba.core import event

compiled = []

class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__qualname__)

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())

import plackett
from plackett.data import load_letor, make_graded_lists
from plackett.losses import partition_loss

scores, labels = np.random.default_rng(0).standard_normal(30), np.arange(30) % 3
plackett.partition_log_likelihood(scores, labels)
plackett.partition_log_likelihood(scores, labels, top=5)
plackett.partition_derivatives(scores, np.arange(30))
plackett.partition_derivatives(scores, labels, top=5)
plackett.metrics.ndcg(scores, labels, k=10)
plackett.metrics.kendall_tau(scores, labels)
partition_loss(torch.tensor(scores, requires_grad=True), torch.tensor(labels)).backward()
data = make_graded_lists(6, mean_length=10, n_features=7, random_state=0)[0]
plackett.LinearRanker().fit(data).score(data.X, data.y, qid=data.qid)
plackett.BoostedRanker(n_estimators=3, eval_metric="ndcg@10").fit(data, eval_set=data).predict(data.X)
plackett.NeuralRanker(epochs=1, random_state=0, progress=False).fit(data).predict(data.X)
plackett.RankAggregator().fit([["a", "b", "c"], ["c", "a"], ["b", "c", "a"]])
load_letor(io.BytesIO(b"1 qid:1 1:0.5\\n0 qid:1 2:1\\n"))
print(compiled)
"""


def test_no_entry_point_compiles_after_compile_kernels():
    folder = plackett.compile_kernels(jobs=2, progress=False)
    assert list(folder.iterdir())
    result = subprocess.run([sys.executable, "-c", _ENTRY_POINTS], capture_output=True, text=True, check=False)  # noqa: S603
    assert result.stdout.strip() == "[]", result.stderr[-2000:] + result.stdout


def test_failed_task_is_reported(monkeypatch):
    monkeypatch.setattr(ahead_of_time, "TASKS", {"a task that workers lack": (print, ())})
    with pytest.raises(plackett.errors.PlackettError, match=r"kernels of a task that workers lack: KeyError"):
        plackett.compile_kernels(jobs=1, progress=False)
