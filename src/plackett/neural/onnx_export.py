"""A fitted model, feature scaling and ensemble included, as one module and as an ONNX file."""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from plackett.data.files import atomic_path
from plackett.errors import MissingDependencyError


class ScaledEnsemble(nn.Module):
    """From raw features to the mean score of the members; `score(member, x)` computes the scores of scaled features.

    `path`, if any, is a module from scaled features to scores that are added.
    """

    def __init__(
        self,
        scaling: nn.Module,
        networks: Sequence[nn.Module],
        score: Callable[[Any, Tensor], Tensor],
        path: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.scaling = copy.deepcopy(scaling)
        self.members = nn.ModuleList(copy.deepcopy(network) for network in networks)
        self.path = copy.deepcopy(path)
        self._score = score

    def forward(self, features: Tensor) -> Tensor:
        x = self.scaling(features)
        scores = torch.stack([self._score(member, x) for member in self.members]).mean(0)
        return scores if self.path is None else scores + self.path(x)


def write_onnx(path: str | os.PathLike[str], ensemble: ScaledEnsemble, n_features: int) -> None:
    """Write an ONNX file with the input "features", (rows, n_features), and the output "scores"."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingDependencyError("onnx", "onnx", "export_onnx") from None
    with atomic_path(path) as temporary, _quiet_exporter():
        torch.onnx.export(
            ensemble.cpu().eval(),
            (torch.ones(3, n_features),),
            temporary,
            input_names=["features"],
            output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence torch's exporter: it logs optional packages that are missing, and warns of its own deprecated calls."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(before)
