"""Every loss by name: its forms, its properties, and where its functions are.

Adding a loss: write `name_loss` in a module of this package and add one entry to `LOSSES`. Every estimator then takes
`objective="name"`, and the tests of the registry check the properties that the entry states. A loss of your own need
not be registered: estimators take a function in place of a name, see `own_loss`.

Functions are named, not imported, so this module needs no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Loss:
    """A loss in all its forms. Each form is "module.function" of this package, or a function; None if there is none.

    dense       scores and labels of lists
    sparse      scores of many columns, of which each row has a few positives
    fused       the same from the input of a linear output layer, without making the scores
    sharded     the same for an output layer whose columns several processes hold
    curvature   second derivatives for trees, with the options of the loss; see `plackett.losses.curvature`

    takes_grades                the sparse, fused and sharded forms take `labels`, the grades of positives
    silent_without_preference   a list whose labels are all equal contributes no loss and no gradient
    ignores_shift               adding a constant to all scores of a list changes nothing
    random                      each call draws from `generator`; invariances hold in expectation
    takes_ties                  equal labels are accepted
    takes_item_weights          the dense form and the curvature take `item_weights`: the loss is a sum over items
    """

    name: str
    dense: str | Callable[..., Any] | None = None
    sparse: str | Callable[..., Any] | None = None
    fused: str | Callable[..., Any] | None = None
    sharded: str | Callable[..., Any] | None = None
    curvature: str | Callable[..., Any] | None = None
    takes_grades: bool = False
    silent_without_preference: bool = True
    ignores_shift: bool = True
    random: bool = False
    takes_ties: bool = True
    takes_item_weights: bool = False

    def form(self, kind: str) -> Callable[..., Any] | None:
        """The function of a form: "dense", "sparse", "fused", "sharded" or "curvature"."""
        found = getattr(self, kind)
        if not isinstance(found, str):
            return found  # type: ignore[no-any-return]
        module, _, function = found.rpartition(".")
        return getattr(import_module(f"plackett.losses.{module}"), function)  # type: ignore[no-any-return]

    @property
    def function(self) -> Callable[..., Any]:
        """The dense form."""
        found = self.form("dense")
        if found is None:
            raise TypeError(f"the loss {self.name!r} has no dense form")
        return found

    def check_options(self, options: dict[str, Any] | None, form: str = "dense") -> dict[str, Any]:
        """The options as given, if the loss takes them in this form, or in its dense form where it lacks this one."""
        function = self.form(form) or self.function
        parameters = inspect.signature(function).parameters
        known = sorted(set(parameters) - _NOT_OPTIONS)
        unknown = sorted(set(options or {}) - set(known))
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        if unknown and not takes_any:
            raise ValueError(
                f"objective_options of {self.name} must be among {', '.join(known) or 'none'}, got {', '.join(unknown)}"
            )
        return dict(options or {})


_NOT_OPTIONS = {
    "scores", "labels", "indices", "offsets", "where", "weights", "item_weights", "reduction", "generator", "negatives",
}  # fmt: skip

_ENTRIES = (
    Loss(
        "partition", "listwise.partition_loss", "sparse_columns.sparse_partition_loss",
        "fused_layer.linear_partition_loss", "sharded_layer.sharded_partition_loss", takes_grades=True,
    ),
    Loss("topk", "listwise.topk_loss", takes_ties=False),
    Loss(
        "lower_bound", "listwise.lower_bound_loss", "sparse_columns.sparse_lower_bound_loss",
        "fused_layer.linear_lower_bound_loss", "sharded_layer.sharded_lower_bound_loss", "curvature.lower_bound",
        takes_grades=True, takes_item_weights=True,
    ),
    Loss(
        "attrank", "listwise.attrank_loss", curvature="curvature.attrank", silent_without_preference=False,
        takes_item_weights=True,
    ),
    Loss(
        "listnet", "listwise.listnet_loss", curvature="curvature.listnet", silent_without_preference=False,
        takes_item_weights=True,
    ),
    Loss(
        "listmle", "listwise.listmle_loss", curvature="curvature.listmle", random=True, silent_without_preference=False,
    ),
    Loss(
        "listpl", "listwise.listpl_loss", curvature="curvature.listpl", random=True, silent_without_preference=False,
    ),
    Loss(
        "ranknet", "pairwise.ranknet_loss", "sparse_columns.sparse_ranknet_loss", curvature="curvature.ranknet",
    ),
    Loss(
        "ranksvm", "pairwise.ranksvm_loss", "sparse_columns.sparse_ranksvm_loss", curvature="curvature.ranksvm",
    ),
    Loss("lambdarank", "pairwise.lambdarank_loss"),
    Loss("approx_ndcg", "pairwise.approx_ndcg_loss", curvature="curvature.approx_ndcg"),
    Loss("expected_utility", "policy.expected_utility_loss", random=True, silent_without_preference=False),
    Loss("logistic", sparse="sparse_columns.sparse_logistic_loss", sharded="sharded_layer.sharded_logistic_loss"),
)  # fmt: skip

LOSSES: dict[str, Loss] = {loss.name: loss for loss in _ENTRIES}
"""All losses by name."""


def loss_names(form: str = "dense") -> list[str]:
    """The names of the losses that have a form."""
    return [name for name, loss in LOSSES.items() if getattr(loss, form) is not None]


def check_form(argument: str, loss: Loss, form: str) -> None:
    """Raise an error if an argument requires a form that the loss does not have."""
    if getattr(loss, form) is None:
        *others, last = loss_names(form)
        raise ValueError(f"{argument}= requires objective {', '.join(others)} or {last}, got {loss.name!r}")


def get_loss(name: str) -> Callable[..., Any]:
    """The loss function of that name, for lists.

    >>> get_loss("listnet").__name__
    'listnet_loss'
    """
    if not isinstance(name, str):
        raise ValueError(f"loss must be a name, got {type(name).__name__}")
    if name not in loss_names():
        raise ValueError(f"loss must be one of {', '.join(loss_names())}, got {name!r}")
    return LOSSES[name].function


class FunctionName(str):
    """The name of a function that a saved model was fitted with. The function itself is not saved."""

    __slots__ = ()


def is_function(objective: Any) -> bool:
    """Whether an objective is more than its name: a function, or a loss that is not registered."""
    if isinstance(objective, Loss):
        return LOSSES.get(objective.name) is not objective
    return isinstance(objective, FunctionName) or callable(objective)


def is_own_objective(objective: Any) -> bool:
    """Whether an estimator's objective is a `Loss`, a function, or the name left of one, rather than a plain name."""
    return isinstance(objective, Loss | FunctionName) or callable(objective)


def function_name(objective: Any) -> str:
    """The name of an objective, be it a name, a function or a `Loss`."""
    if isinstance(objective, str | Loss):
        return str(getattr(objective, "name", objective))
    return str(getattr(objective, "__name__", type(objective).__name__))


def find_loss(objective: Any, *, form: str = "dense") -> Loss:
    """The loss of an estimator's `objective`: one of `LOSSES` by name, a `Loss`, or a function of your own.

    Args:
        form: the form that the estimator prefers. A loss without it must have the dense form.
    """
    if isinstance(objective, Loss):
        if getattr(objective, form) is None and objective.dense is None:
            raise ValueError(f"objective must be a loss with a {form} form, got {objective.name!r}, which has none")
        return objective
    if isinstance(objective, FunctionName):
        raise ValueError(
            f"objective {str(objective)!r} is a function, which is not saved with the model: pass it again, "
            "load(path, objective=...)"
        )
    if callable(objective):
        return own_loss(objective)
    names = loss_names(form) if form == "dense" else list(dict.fromkeys([*loss_names(form), *loss_names()]))
    if objective not in names:
        raise ValueError(f"objective must be one of {', '.join(names)}, or a function, got {objective!r}")
    return LOSSES[objective]


def check_item_weighting(objective: Any, item_weight: Any) -> None:
    """Raise an error if weights of items are given for an objective that has no consistent form with them."""
    if item_weight is None:
        return
    known = [name for name, loss in LOSSES.items() if loss.takes_item_weights]
    loss = objective if isinstance(objective, Loss) else LOSSES.get(objective) if isinstance(objective, str) else None
    if loss is None or not loss.takes_item_weights:
        raise ValueError(
            f"item_weight must be None with the objective {function_name(objective)!r}, got weights. Weights of items, "
            "such as inverse propensities, are consistent only for a loss that is a sum over items; the exact "
            "likelihood of a tier is not, because the items of a tier are in one product inside an integral. Choose "
            f"{', '.join(known[:-1])} or {known[-1]}, or correct for positions with position="
        )


def own_loss(function: Callable[..., Any], name: str | None = None) -> Loss:
    """A function of your own as a loss.

    Args:
        function: f(scores, labels, offsets, **options) -> one value per list, in torch and differentiable. List b holds
            the items offsets[b] to offsets[b + 1] - 1; items come one list after the other, and there is no padding.
        name: its name in messages and files; None: the function's name.
    """

    from plackett.lists import reduce_losses
    from plackett.losses.loss_lists import make_loss_lists, takes_lists

    def dense(
        scores: Any,
        labels: Any,
        *,
        where: Any = None,
        offsets: Any = None,
        weights: Any = None,
        reduction: str = "mean",
        **options: Any,
    ) -> Any:
        import torch

        lists = make_loss_lists(scores, labels, offsets, where)
        bounds = torch.as_tensor(lists.offsets, device=lists.scores.device)
        values = function(lists.scores, lists.labels, bounds, **options)
        if not isinstance(values, torch.Tensor) or values.shape != (lists.count,):
            got = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise ValueError(f"{title} must return one value per list, shape ({lists.count},), got {got}")
        return reduce_losses(values, weights, reduction)

    title = name or function_name(function)
    own = list(inspect.signature(function).parameters.values())[3:]
    common = list(inspect.signature(dense).parameters.values())[:-1]
    options = [one if one.kind is one.VAR_KEYWORD else one.replace(kind=one.KEYWORD_ONLY) for one in own]
    dense.__signature__ = inspect.Signature([*common, *options])  # type: ignore[attr-defined]
    return Loss(title, takes_lists(dense), silent_without_preference=False, ignores_shift=False)
