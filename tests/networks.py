"""Weights of fitted networks, and whether two models have the same."""

from typing import Any


def weights_of(model: Any) -> list[Any]:
    return [tensor for network in model.networks_ for tensor in network.state_dict().values()]


def assert_same(first: Any, second: Any) -> None:
    import torch

    mine, theirs = weights_of(first), weights_of(second)
    assert len(mine) == len(theirs) > 0
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
