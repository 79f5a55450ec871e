"""Weights of fitted networks, whether two models have the same, and models whose objective is a function."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from plackett.errors import DataError
from plackett.estimators import load_model


def weights_of(model: Any) -> list[Any]:
    return [tensor for network in model.networks_ for tensor in network.state_dict().values()]


def assert_same(first: Any, second: Any) -> None:
    import torch

    mine, theirs = weights_of(first), weights_of(second)
    assert len(mine) == len(theirs) > 0
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def check_function_is_saved_by_name(make: Callable[[Any], Any], function: Any, data: Any, folder: Path) -> None:
    """Only the name of an objective's function is saved: predictions do not need the function, `fit` does.

    `make(objective)` makes an estimator. Checkpoints describe the function by its name, too.
    """
    from plackett.losses import own_loss

    name = function.__name__
    model = make(function).fit(data, checkpoint=folder / "c", checkpoint_every=0)
    model.save(folder / "model")
    description = json.loads((folder / "model" / "plackett.json").read_text())
    assert description["parameters"]["objective"] == name
    assert description["functions"] == {"objective": name}
    loaded = load_model(folder / "model")
    assert loaded.objective == name
    np.testing.assert_array_equal(loaded.predict(data.X), model.predict(data.X))
    loaded.save(folder / "second")
    for stale in (loaded, clone(loaded), type(model).load(folder / "second")):
        with pytest.raises(ValueError, match=rf"objective '{name}' is a function.*load\(path, objective=...\)"):
            stale.fit(data)
    assert_same(type(model).load(folder / "model", objective=function).fit(data), model)
    resumed = make(function).fit(data, checkpoint=folder / "c")
    assert resumed.history_["seconds"] == model.history_["seconds"]
    with pytest.raises(DataError, match="a different training"):
        make(own_loss(function)).fit(data, checkpoint=folder / "c")
