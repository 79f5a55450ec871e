"""Parameters as scikit-learn's estimators have them, without scikit-learn, which takes longer to import than numba."""

from __future__ import annotations

import copy
import inspect
from functools import cache
from typing import Any, Self, cast


class PlainEstimator:
    """The part of `sklearn.base.BaseEstimator` that an estimator without features uses.

    `sklearn.base.clone` works, and notebooks show the estimator as scikit-learn shows its own. There is no metadata
    routing: rankings are not rows that a pipeline or a search could split.
    """

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

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """What notebooks show. They have time to import scikit-learn."""
        shown, kind = copy.copy(self), cast("Any", type(self))
        shown.__class__ = _with_scikit_learn(kind)
        return super(PlainEstimator, shown)._repr_mimebundle_(**options)  # type: ignore[misc]

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


@cache
def _with_scikit_learn(kind: type) -> Any:
    """The class as a subclass of `BaseEstimator`, under the same name."""
    from sklearn.base import BaseEstimator

    return type(kind.__name__, (kind, BaseEstimator), {"__module__": kind.__module__, "__doc__": kind.__doc__})


def _defaults(kind: type) -> dict[str, Any]:
    """The parameters of a class, in the order of their names, and their default values."""
    signature = inspect.signature(kind)
    return {name: signature.parameters[name].default for name in sorted(signature.parameters)}
