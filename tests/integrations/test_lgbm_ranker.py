"""A script for LGBMRanker moves to BoostedRanker by its import and the name of the class alone."""

import runpy
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "scripts" / "lgbm_ranker.py"


# LightGBM's own ranker warns of its own arguments and names; SHAP of the libraries it imports.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("moved", [False, True], ids=["LGBMRanker", "BoostedRanker"])
def test_script_runs_with_both(tmp_path, monkeypatch, moved):
    text = SCRIPT.read_text()
    if moved:
        text = text.replace("from lightgbm import LGBMRanker", "from plackett import BoostedRanker")
        text = text.replace("(LGBMRanker)", "(BoostedRanker)").replace("LGBMRanker(\n", "BoostedRanker(\n")
        assert "LGBMRanker" not in text.split('"""', 2)[2]
    (tmp_path / "script.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path("script.py")
    model, scores = found["model"], found["scores"]
    assert 1 <= model.best_iteration_ <= 60
    assert len(found["curve"]) >= model.best_iteration_
    assert found["best"] == model.evals_result_["valid"]["ndcg@3"][model.best_iteration_ - 1]
    assert found["best"] > 0.8
    np.testing.assert_allclose(found["parts"].sum(1), scores, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["explained"], found["parts"][:, :-1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["again"], scores, rtol=1e-9, atol=1e-9)
    assert found["leaves"].shape == (len(scores), model.best_iteration_)
    assert max(found["importances"], key=found["importances"].get) == "Column_0"
    assert found["search"].best_score_ > 0.8
    assert set(found["search"].best_params_) == {"num_leaves"}
