"""Losses for the CrossEncoder of sentence-transformers, with its constructor and its calling conventions.

    from plackett.integrations.sentence_transformers import PartitionLoss
    trainer = CrossEncoderTrainer(model=model, train_dataset=dataset, loss=PartitionLoss(model))

The data have the columns query, documents (a list of texts per query, of any length) and labels (a grade for each
document, higher is better). Documents of equal grade form a tier, whose order is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plackett.arguments import check_count, check_kind
from plackett.errors import MissingDependencyError
from plackett.lists import offsets_from_sizes
from plackett.losses import RankingLoss

__all__ = ["ListMLELoss", "ListPLLoss", "ListwiseLoss", "LowerBoundLoss", "PartitionLoss"]


class ListwiseLoss(nn.Module):
    """The base of all losses: a loss of `plackett.losses` by name, or a function of your own, for a CrossEncoder.

    Args:
        model: the CrossEncoder to train, with one output.
        loss: the name of the loss, or a function f(scores, labels, offsets) -> one value per query.
        activation_fn: applied to the scores first. None: nn.Identity().
        mini_batch_size: pairs of query and document per forward pass. None: as many as there are queries in the batch;
            0 or less: all at once.
        cache_mini_batches: keep no activations, and recompute each mini-batch in the backward pass. A batch then needs
            the memory of one mini-batch, and a second forward pass.
        options: options of the loss by name.
    """

    citation = ""

    def __init__(
        self,
        model: Any,
        loss: Any,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
        *,
        cache_mini_batches: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if getattr(model, "num_labels", None) != 1:
            got = getattr(model, "num_labels", None) or type(model).__name__
            raise ValueError(f"model must be a CrossEncoder with one output (num_labels=1), got {got}")
        if mini_batch_size is not None:
            check_count("mini_batch_size", mini_batch_size, least=-(2**31))
        check_kind("cache_mini_batches", cache_mini_batches, bool)
        self.model = model
        self.loss = RankingLoss(loss, **options)
        self.activation_fn = activation_fn or nn.Identity()
        self.mini_batch_size = mini_batch_size
        self.cache_mini_batches = cache_mini_batches
        self.options = options

    def forward(
        self,
        inputs: Sequence[Any],
        labels: Any,
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """The mean loss over queries, in float32.

        Args:
            inputs: queries, and the documents of each.
            labels: one tensor of grades for each query.
            prompt, task: passed on to the model's preprocessing.
        """
        queries, documents = _check_inputs(inputs, labels)
        pairs = [(query, text) for query, texts in zip(queries, documents, strict=True) for text in texts]
        if not pairs:  # a gradient of 0 for every parameter: processes that train together must all have gradients
            return self._score([("", "")], prompt, task, self.model).float().sum() * 0.0
        scores = self.activation_fn(self._scores(pairs, len(queries), prompt, task).float())
        grades = torch.cat([torch.as_tensor(row).reshape(-1) for row in labels]).to(scores.device)
        offsets = offsets_from_sizes([len(texts) for texts in documents])
        value: Tensor = self.loss(scores, grades, offsets=offsets)
        return value

    def _scores(self, pairs: list[Any], queries: int, prompt: str | None, task: str | None) -> Tensor:
        """The scores of all pairs, by mini-batches.

        DistributedDataParallel treats every call as the start of a step and must see exactly one: the last mini-batch.
        It must not be called when a mini-batch is recomputed.
        """
        size = queries if self.mini_batch_size is None else self.mini_batch_size
        size = size if size > 0 else len(pairs)
        is_parallel = isinstance(self.model, nn.parallel.DistributedDataParallel)
        inner = self.model.module if is_parallel else self.model
        found = []
        for first in range(0, len(pairs), size):
            batch = pairs[first : first + size]
            networks = iter([self.model if first + size >= len(pairs) else inner])
            score = partial(self._score, batch, prompt, task)
            if self.cache_mini_batches and torch.is_grad_enabled():
                again = partial(_score_with_next, score, networks, inner)
                found.append(checkpoint(again, use_reentrant=False))
            else:
                found.append(score(next(networks)))
        return torch.cat(found)

    def _score(self, pairs: list[Any], prompt: str | None, task: str | None, network: Any) -> Tensor:
        try:
            from sentence_transformers.util import batch_to_device
        except ImportError:
            name = type(self).__name__
            raise MissingDependencyError("sentence_transformers", "sentence-transformers", name) from None
        tokens = batch_to_device(self.model.preprocess(pairs, prompt=prompt, task=task), self.model.device)
        # A plain dict: DistributedDataParallel finds no outputs in the tokenizer's own type, and refuses to continue.
        scores: Tensor = network(dict(tokens))["scores"]
        return scores.view(-1)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, which sentence-transformers writes into the model card."""
        activation = type(self.activation_fn)
        return {
            "activation_fn": f"{activation.__module__}.{activation.__qualname__}",
            "mini_batch_size": self.mini_batch_size,
            "cache_mini_batches": self.cache_mini_batches,
        } | self.options


def _score_with_next(score: Callable[[Any], Tensor], networks: Iterator[Any], inner: Any) -> Tensor:
    """The scores of the next network, or of the inner one when none is left."""
    return score(next(networks, inner))


def _check_inputs(inputs: Sequence[Any], labels: Any) -> tuple[list[Any], list[Any]]:
    if len(inputs) != 2:
        raise ValueError(
            f"inputs must be two columns, queries and lists of documents, got {len(inputs)}: name the columns of the "
            "data query, documents and labels, in this order"
        )
    if isinstance(labels, Tensor) and labels.dim() != 2:
        raise ValueError(
            f"labels must hold a list of grades for each query, got one value each (shape {tuple(labels.shape)})"
        )
    queries, documents = inputs
    if any(isinstance(texts, str) for texts in documents):
        raise ValueError("documents must be lists of texts, one list per query, got single texts: wrap each in a list")
    sizes, grades = [len(texts) for texts in documents], [len(row) for row in labels]
    if sizes != grades or len(queries) != len(sizes):
        raise ValueError(f"labels must hold one grade per document, {sizes} for {len(queries)} queries, got {grades}")
    return queries, documents


class PartitionLoss(ListwiseLoss):
    """PL-Partition: minus the exact log-likelihood of the tiers (Ma et al. 2021).

    The order of documents in the data does not matter, not even among equal grades.

    Args:
        model, activation_fn, mini_batch_size, cache_mini_batches: see `ListwiseLoss`.
        top: count only the first `top` places.
        tier_weights: "gain" weights the term of each tier by its 2^grade minus that of the next tier; None: 1.
    """

    citation = """
@inproceedings{ma2021partitioned,
    title={Learning-to-Rank with Partitioned Preference: Fast Estimation for the Plackett-Luce Model},
    author={Ma, Jiaqi and Yi, Xinyang and Tang, Weijing and Zhao, Zhe and Hong, Lichan and Chi, Ed H. and Mei, Qiaozhu},
    booktitle={AISTATS},
    year={2021}
}
"""

    def __init__(
        self,
        model: Any,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
        *,
        top: int | None = None,
        tier_weights: str | None = None,
        cache_mini_batches: bool = False,
    ) -> None:
        super().__init__(
            model,
            "partition",
            activation_fn,
            mini_batch_size,
            cache_mini_batches=cache_mini_batches,
            top=top,
            tier_weights=tier_weights,
        )


class LowerBoundLoss(ListwiseLoss):
    """PL-LB (Hino et al. 2010): each document of a tier is drawn as if the others were still there.

    Never below `PartitionLoss`. For the arguments see `ListwiseLoss`.
    """

    def __init__(
        self,
        model: Any,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
        *,
        cache_mini_batches: bool = False,
    ) -> None:
        super().__init__(model, "lower_bound", activation_fn, mini_batch_size, cache_mini_batches=cache_mini_batches)


class _RandomLoss(ListwiseLoss):
    """A loss that draws orders, from a generator of its own."""

    def __init__(self, model: Any, loss: str, *arguments: Any, random_state: int, **options: Any) -> None:
        super().__init__(model, loss, *arguments, **options)
        self.random_state = check_count("random_state", random_state, least=0)
        self._generator: torch.Generator | None = None

    def forward(self, inputs: Any, labels: Any, prompt: str | None = None, task: str | None = None) -> Tensor:
        """The mean loss over queries, for an order drawn in this call."""
        if self._generator is None:
            self._generator = torch.Generator(self.model.device).manual_seed(self.random_state)
            self.loss.options["generator"] = self._generator
        return super().forward(inputs, labels, prompt, task)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, which sentence-transformers writes into the model card."""
        return super().get_config_dict() | {"random_state": self.random_state}


class ListMLELoss(_RandomLoss):
    """ListMLE (Xia et al. 2008) with an explicit treatment of ties.

    The order of documents in the data does not matter, except with ties="stable".

    Args:
        model, activation_fn, mini_batch_size, cache_mini_batches: see `ListwiseLoss`.
        ties: "random" breaks ties at random in every call, "stable" by the order of the documents, "efron" and
            "breslow" approximate the sum over all orders, "exact" is `PartitionLoss`.
        bottom: whether the lowest grade is "ordered" too, or "unordered"; None: see `plackett.losses.listmle_loss`.
        random_state: seed for ties="random".
    """

    citation = """
@inproceedings{xia2008listwise,
    title={Listwise Approach to Learning to Rank: Theory and Algorithm},
    author={Xia, Fen and Liu, Tie-Yan and Wang, Jue and Zhang, Wensheng and Li, Hang},
    booktitle={ICML},
    year={2008}
}
"""

    def __init__(
        self,
        model: Any,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
        *,
        ties: str = "random",
        bottom: str | None = None,
        random_state: int = 0,
        cache_mini_batches: bool = False,
    ) -> None:
        super().__init__(
            model,
            "listmle",
            activation_fn,
            mini_batch_size,
            cache_mini_batches=cache_mini_batches,
            ties=ties,
            bottom=bottom,
            random_state=random_state,
        )


class ListPLLoss(_RandomLoss):
    """ListPL: minus the log-likelihood of orders drawn from the Plackett-Luce distribution of the grades.

    Args:
        model, activation_fn, mini_batch_size, cache_mini_batches: see `ListwiseLoss`.
        psi: grades are multiplied by this number before orders are drawn.
        samples: number of orders to average over.
        random_state: seed for the orders.
    """

    def __init__(
        self,
        model: Any,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
        *,
        psi: float = 1.0,
        samples: int = 1,
        random_state: int = 0,
        cache_mini_batches: bool = False,
    ) -> None:
        super().__init__(
            model,
            "listpl",
            activation_fn,
            mini_batch_size,
            cache_mini_batches=cache_mini_batches,
            psi=psi,
            samples=samples,
            random_state=random_state,
        )
