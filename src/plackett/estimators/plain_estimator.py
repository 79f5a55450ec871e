"""Parameters as scikit-learn's estimators have them, without scikit-learn, which takes longer to import than numba."""

from __future__ import annotations

import inspect
from typing import Any, Self


class PlainEstimator:
    """The part of `sklearn.base.BaseEstimator` that an estimator without features uses; `sklearn.base.clone` works."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - no parameter is an estimator
        """The parameters by name."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name."""
        known = _defaults(type(self))
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"parameters of {type(self).__name__} must be among {', '.join(known)}, got {name!r}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = _defaults(type(self))
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if repr(value) != repr(usual[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


def _defaults(kind: type) -> dict[str, Any]:
    """The parameters of a class, in the order of their names, and their default values."""
    signature = inspect.signature(kind)
    return {name: signature.parameters[name].default for name in sorted(signature.parameters)}
