"""plackett demo"""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plackett.experiments.tie_demo import FEATURES, LENGTH, LIKED, SYSTEMS, disagreement, make_data, run_demo
from plackett.metrics import ndcg

pytest.importorskip("lightgbm")


def test_demo_writes_a_page_and_names_commands_that_work(plackett: Any, tmp_path: Path) -> None:
    folder, picture = tmp_path / "demo", tmp_path / "demo.png"
    code, out, err = plackett("demo", "-o", folder, "--seeds", 1, "--queries", 30, "--picture", picture)
    assert code == 0, err
    assert all(name in out for name in SYSTEMS)
    assert "Share of a true coefficient" in out
    page = (folder / "demo.html").read_text()
    assert all(feature in page for feature in FEATURES[:2])
    assert picture.read_bytes().startswith(b"\x89PNG")
    commands = [line.strip() for line in out.splitlines() if line.startswith("  plackett ")]
    assert len(commands) == 3
    for command in commands:
        code, out, err = plackett(*shlex.split(command)[1:])
        assert code == 0, err
    assert "ndcg@10" in out


def test_data_of_the_demo_mix_full_orders_and_likes() -> None:
    data = make_data(4, 3, random_state=1)
    labels = data.train.y.reshape(-1, LENGTH)
    assert all(len(set(row)) == LENGTH for row in labels[:4].tolist())
    assert labels[4:].sum(axis=1).tolist() == [LIKED] * 4
    np.testing.assert_allclose(data.truth, data.test.X[:, 0] + data.test.X[:, 1])
    assert len(set(data.train.qid) | set(data.test.qid)) == 11


def test_exact_likelihood_finds_the_best_result_most_often() -> None:
    """On other data than the demo shows. The margin to the next system is about four standard errors at this size."""
    outcome = run_demo(make_data(random_state=1))
    first = {result.system: result.value for result in outcome.results if result.metric == "p@1"}
    exact, *others = first.values()
    assert exact > max(others)
    data = outcome.data.test
    for result in outcome.results:
        if result.metric == "ndcg@10":
            expected = ndcg(outcome.scores[result.system], data.y, k=10, offsets=data.offsets)
            assert result.value == pytest.approx(expected)
    query = disagreement(outcome)
    part = slice(query * LENGTH, (query + 1) * LENGTH)
    winners = [int(scores[part].argmax()) for scores in outcome.scores.values()]
    best = int(outcome.data.truth[part].argmax())
    assert winners[0] == best
    assert best not in winners[1:]
