"""Feature scaling as a module: fitted on training data, saved and exported with the network.

It computes in double precision, because features of ranking data can be large and nearly constant, and returns single
precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from plackett.neural.weights import set_weights

SCALINGS = ("none", "standard", "log1p", "quantile")
ROW_SCALINGS = ("norm", "sqrt", "tfidf", "none")
MISSING = ("mean", "indicator", "error")
_KNOTS = 65
_NUMBERS_AT_ONCE = 1 << 20


class FeatureScaling(nn.Module):
    """Scaling of feature columns.

    Args:
        scaling: "standard": zero mean and unit variance; "log1p": sign(x) log(1 + |x|), then standard; "quantile": the
            rank among the training values, from -1 to 1, interpolated; "none": unchanged.
        missing: treatment of NaN. "mean": replace it by the mean of the scaled training values; "indicator": the same,
            and add an indicator column for every feature with missing values in training; "error": refuse it.
    """

    def __init__(self, n_features: int, scaling: str = "standard", missing: str = "mean") -> None:
        super().__init__()
        if scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}")
        if missing not in MISSING:
            raise ValueError(f"missing must be one of {', '.join(MISSING)}, got {missing!r}")
        self.scaling, self.missing, self.n_features = scaling, missing, n_features
        zeros = torch.zeros(n_features, dtype=torch.float64)
        self.register_buffer("shift", zeros.clone())
        self.register_buffer("scale", zeros.clone() + 1.0)
        self.register_buffer("filling", zeros.clone())
        self.register_buffer("indicated", torch.zeros(0, dtype=torch.int64))
        knots = _KNOTS - 1 if scaling == "quantile" else 0
        self.register_buffer("knots", torch.zeros(knots, n_features, dtype=torch.float64))
        self.register_buffer("widths", torch.ones(knots, n_features, dtype=torch.float64))
        self.register_buffer("rises", torch.zeros(knots, n_features, dtype=torch.float64))

    shift: Tensor
    scale: Tensor
    filling: Tensor
    indicated: Tensor
    knots: Tensor
    widths: Tensor
    rises: Tensor

    @property
    def width(self) -> int:
        """The number of columns after scaling."""
        return self.n_features + len(self.indicated)

    def fit(self, X: npt.NDArray[Any]) -> FeatureScaling:
        """Fit to training rows."""
        self._check_missing(X)
        is_missing = np.isnan(X)
        if self.missing == "indicator":
            self.indicated = torch.from_numpy(np.flatnonzero(is_missing.any(0)).astype(np.int64))
        if self.scaling == "quantile":
            self._fit_quantiles(X)
        elif self.scaling != "none":
            with np.errstate(over="ignore"):
                values = _compress(np.asarray(X, np.float64)) if self.scaling == "log1p" else np.asarray(X, np.float64)
            known = np.where(is_missing, 0.0, values)
            count = np.maximum(len(X) - is_missing.sum(0), 1)
            # Divide by the largest value first, so that squares of huge features do not overflow.
            unit = np.maximum(np.abs(known).max(0, initial=0.0), np.finfo(np.float64).tiny)
            mean = (known / unit).sum(0) / count
            spread = np.sqrt((np.where(is_missing, 0.0, known / unit - mean) ** 2).sum(0) / count)
            constant = spread <= 1e-12  # relative to the largest value: rounding only
            self.shift = torch.from_numpy(mean * unit)
            self.scale = torch.from_numpy(np.where(constant, 1.0, spread * unit))
        with torch.no_grad():
            self.filling.zero_()
            total, seen = torch.zeros(self.n_features, dtype=torch.float64), torch.zeros(self.n_features)
            for rows in self._blocks(X):
                block = self._scaled(torch.from_numpy(np.array(X[rows], np.float64)))
                total, seen = total + torch.nansum(block, 0), seen + (~torch.isnan(block)).sum(0)
            self.filling = total / torch.clamp(seen, min=1)
        self.check()
        return self

    def check(self) -> None:
        """Raise an error if the fitted values cannot scale features."""
        for name, values in self.named_buffers():
            if not bool(torch.isfinite(values).all()):
                raise ValueError(f"{name} of the features must be finite: they are too large to be scaled")
        if not bool((self.scale > 0).all() and (self.widths > 0).all()):
            raise ValueError("scale and widths of the features must be above 0")
        if not bool(((self.rises >= 0) & (self.rises <= 2)).all()):  # places are from -1 to 1
            raise ValueError("rises of the features must be from 0 to 2")

    def restore(self, state: dict[str, Tensor]) -> FeatureScaling:
        """Load the `state_dict` of another scaling, whose number of indicator columns may differ."""
        indicated = state["indicated"]
        if indicated.ndim != 1 or indicated.dtype != torch.int64:
            raise ValueError(f"indicated must be a row of whole numbers, got {indicated.dtype} of {indicated.shape}")
        columns = torch.cat([torch.tensor([-1]), indicated, torch.tensor([self.n_features])])
        if not bool((torch.diff(columns) > 0).all()):
            raise ValueError(f"indicated must hold columns from 0 to {self.n_features - 1}, ascending")
        self.indicated = torch.zeros_like(indicated)
        set_weights(self, state)
        self.check()
        return self

    def _fit_quantiles(self, X: npt.NDArray[Any]) -> None:
        """Fit a piecewise linear map from values to their ranks; tied values get their mean rank."""
        levels = np.linspace(0.0, 1.0, _KNOTS)
        for column in range(self.n_features):
            values = np.sort(X[:, column][~np.isnan(X[:, column])].astype(np.float64))
            if values.size == 0:
                continue
            chosen = np.unique(np.quantile(values, levels, method="nearest"))
            left, right = np.searchsorted(values, chosen, "left"), np.searchsorted(values, chosen, "right") - 1
            places = (left + right) / max(1, len(values) - 1) - 1.0  # from -1 to 1
            steps = len(chosen) - 1
            self.shift[column] = places[0]
            self.knots[:, column] = chosen[-1]
            self.knots[:steps, column] = torch.from_numpy(chosen[:-1])
            self.widths[:steps, column] = torch.from_numpy(np.diff(chosen))
            self.rises[:steps, column] = torch.from_numpy(np.diff(places))

    def _scaled(self, x: Tensor) -> Tensor:
        if self.scaling == "quantile":
            parts = torch.clamp((x[:, None, :] - self.knots) / self.widths, 0.0, 1.0)
            return self.shift + (parts * self.rises).sum(1)
        if self.scaling == "log1p":
            x = torch.sign(x) * torch.log1p(torch.abs(x))
        return (x - self.shift) / self.scale

    def forward(self, x: Tensor) -> Tensor:
        is_missing = torch.isnan(x)
        scaled = torch.where(is_missing, self.filling, self._scaled(x.to(torch.float64)))
        if len(self.indicated):
            scaled = torch.cat([scaled, is_missing[:, self.indicated].to(torch.float64)], 1)
        return scaled.to(torch.float32)

    @torch.no_grad()
    def apply_to(self, X: npt.NDArray[Any]) -> Tensor:
        """Scale all rows, block by block."""
        self._check_missing(X)
        device = self.shift.device

        def scaled(block: npt.NDArray[Any]) -> Tensor:
            copied = np.array(block, np.float64)  # torch warns about read-only arrays
            return cast("Tensor", self(torch.from_numpy(copied).to(device)).cpu())

        blocks = list(self._blocks(X))
        if len(blocks) == 1:
            return scaled(X)
        out = torch.empty((len(X), self.width), dtype=torch.float32)
        for rows in blocks:
            out[rows] = scaled(X[rows])
        return out

    def _blocks(self, X: npt.NDArray[Any]) -> Iterator[slice]:
        """Blocks of rows, small enough for a table of rows x features x knots."""
        size = max(1, _NUMBERS_AT_ONCE // max(1, self.n_features * max(1, len(self.knots))))
        return (slice(first, first + size) for first in range(0, len(X), size))

    def _check_missing(self, X: npt.NDArray[Any]) -> None:
        if self.missing == "error" and np.isnan(X).any():
            column = int(np.argmax(np.isnan(X).any(0)))
            raise ValueError(f"X must hold no NaN with missing='error', got some in column {column}")


def _compress(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    compressed: npt.NDArray[np.float64] = np.sign(values) * np.log1p(np.abs(values))
    return compressed


class RowScaling(nn.Module):
    """Scaling of sparse rows.

    Args:
        scaling: "norm": every row has the norm `scale`; "sqrt": the same after taking square roots of the values, with
            their signs, so that no few large values outweigh the others; "tfidf": the same after weighting each column
            by log((1 + n) / (1 + n_j)) + 1, where n_j of the n training rows have the column; "none": unchanged.
    """

    def __init__(self, n_features: int, scaling: str = "norm", scale: float = 1.0) -> None:
        super().__init__()
        if scaling not in ROW_SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(ROW_SCALINGS)}, got {scaling!r}")
        self.scaling, self.scale, self.n_features = scaling, scale, n_features
        self.register_buffer("column_weights", torch.ones(n_features, dtype=torch.float64))

    column_weights: Tensor

    def restore(self, state: dict[str, Tensor]) -> RowScaling:
        """Load the `state_dict` of another scaling."""
        set_weights(self, state)
        if not bool((torch.isfinite(self.column_weights) & (self.column_weights > 0)).all()):
            raise ValueError("column_weights must be finite and above 0")
        return self

    def fit(self, X: Any) -> RowScaling:
        if self.scaling == "tfidf":
            rows = np.bincount(X.indices[X.data != 0], minlength=self.n_features)
            self.column_weights = torch.from_numpy(np.log((1.0 + X.shape[0]) / (1.0 + rows)) + 1.0)
        return self

    def apply_to(self, X: Any) -> Any:
        """Scale CSR rows; the result is CSR in single precision."""
        data = X.data.astype(np.float64)
        if self.scaling == "sqrt":
            data = np.sign(data) * np.sqrt(np.abs(data))
        elif self.scaling == "tfidf":
            data *= self.column_weights.cpu().numpy()[X.indices]
        if self.scaling != "none":
            starts = X.indptr.astype(np.int64)
            largest = np.ones(X.shape[0])
            filled = np.diff(starts) > 0
            largest[filled] = np.maximum.reduceat(np.abs(data), starts[:-1][filled])  # squares could overflow
            largest[largest == 0.0] = 1.0
            data /= np.repeat(largest, np.diff(starts))
            norms = np.sqrt(np.bincount(np.repeat(np.arange(X.shape[0]), np.diff(starts)), data**2, X.shape[0]))
            norms[norms == 0.0] = 1.0
            data *= np.repeat(self.scale / norms, np.diff(starts))
        return type(X)((data.astype(np.float32), X.indices, X.indptr), shape=X.shape)

    def forward(self, x: Tensor) -> Tensor:
        """Scale dense rows, for export."""
        x = x.to(torch.float64) * self.column_weights
        if self.scaling == "sqrt":
            x = torch.sign(x) * torch.sqrt(torch.abs(x))
        if self.scaling != "none":
            norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            x = x * (self.scale / torch.where(norms > 0, norms, 1.0))
        return x.to(torch.float32)
