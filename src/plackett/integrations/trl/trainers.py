"""Trainers: TRL's RewardTrainer with lists of graded answers, and DPO on transformers' own Trainer."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import torch

from plackett.arguments import check_range
from plackett.errors import MissingDependencyError
from plackett.integrations.trl.answers import (
    COLUMNS,
    GradedAnswersCollator,
    offsets_of,
    pair_accuracy,
    sequence_logps,
    tokenize_answers,
)
from plackett.integrations.trl.losses import partition_dpo_loss
from plackett.losses import RankingLoss

try:
    from transformers import Trainer
    from trl import RewardTrainer
except ImportError as error:
    raise MissingDependencyError("trl", "trl", "plackett.integrations.trl.trainers") from error


def _tokenized(dataset: Any, processing_class: Any, max_length: int | None, name: str) -> Any:
    """The dataset as token ids. Examples with an answer longer than `max_length` tokens are left out with a warning."""
    if dataset is None:
        return None
    if not set(COLUMNS) <= set(next(iter(dataset))):
        dataset = dataset.map(partial(tokenize_answers, processing_class=processing_class))
    if max_length is None:
        return dataset
    kept = dataset.filter(lambda example: max(map(len, example["answer_ids"])) <= max_length)
    if hasattr(dataset, "__len__") and len(kept) < len(dataset):
        warnings.warn(
            f"{len(dataset) - len(kept)} of {len(dataset)} examples of the {name} dataset are left out: an answer has "
            f"more than max_length={max_length} tokens",
            stacklevel=4,
        )
    return kept


class _GradedAnswersTrainer(ABC):
    """What both trainers share: the columns of their data, and the form of `compute_loss`."""

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = list(COLUMNS)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002 (Trainer passes it)
    ) -> Any:
        """The mean of the loss over the prompts of a batch."""
        loss, outputs = self._loss_and_outputs(model, inputs)
        return (loss, outputs) if return_outputs else loss

    @abstractmethod
    def _loss_and_outputs(self, model: Any, inputs: dict[str, Any]) -> tuple[Any, Any]: ...


class PartitionRewardTrainer(_GradedAnswersTrainer, RewardTrainer):
    """TRL's RewardTrainer for prompts with any number of graded answers, tied or not.

    Two answers without a tie give RewardTrainer's own loss. `center_rewards_coefficient` weights the mean square of the
    sum of rewards of a prompt.

    Args:
        model, args, train_dataset, eval_dataset, processing_class, ...: as in RewardTrainer, with the columns prompt,
            answers and grades in place of chosen and rejected.
        loss: a loss of `plackett.losses` by name, or a function of your own.
        loss_options: options of the loss by name, such as {"top": 3}.
    """

    def __init__(
        self,
        *arguments: Any,
        data_collator: Any = None,
        loss: Any = "partition",
        loss_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.ranking_loss = RankingLoss(loss, **(loss_options or {}))
        super().__init__(*arguments, data_collator=data_collator, **options)
        if data_collator is None:
            self.data_collator = GradedAnswersCollator(self.processing_class.pad_token_id, self.args.pad_to_multiple_of)

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        return _tokenized(dataset, processing_class, args.max_length, dataset_name)

    def _loss_and_outputs(self, model: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
        rewards = outputs.logits.squeeze(-1)
        loss = self.ranking_loss(rewards, inputs["grades"], offsets=offsets_of(inputs))
        if self.args.center_rewards_coefficient is not None:
            sums = torch.segment_reduce(rewards.float(), "sum", lengths=inputs["sizes"])
            loss = loss + self.args.center_rewards_coefficient * (sums**2).mean()
        self._record(rewards.detach(), inputs)
        return loss, outputs

    def _record(self, rewards: Any, inputs: dict[str, Any]) -> None:
        """Averages for `log`, under RewardTrainer's names."""
        found = self._metrics["train" if self.model.training else "eval"]
        for name in ("min", "mean", "max"):
            found[f"{name}_reward"].append(float(getattr(rewards.float(), name)()))
        accuracy = pair_accuracy(rewards, inputs)
        if accuracy == accuracy:
            found["accuracy"].append(accuracy)


class PartitionDPOTrainer(_GradedAnswersTrainer, Trainer):
    """DPO from any number of graded answers per prompt, tied or not, on transformers' Trainer.

    Two answers without a tie give the sigmoid loss of TRL's DPOTrainer.

    Args:
        model: a causal language model.
        ref_model: the reference; None: a copy of the model as it is now.
        beta: see `partition_dpo_loss`.
        max_length: examples with a longer prompt and answer, in tokens, are left out with a warning; None: keep all.
        args, train_dataset, eval_dataset, processing_class, ...: as in transformers' Trainer, with the columns prompt,
            answers and grades.
    """

    def __init__(
        self,
        model: Any,
        ref_model: Any = None,
        *,
        processing_class: Any,
        beta: float = 0.1,
        max_length: int | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        data_collator: Any = None,
        **options: Any,
    ) -> None:
        self.beta = check_range("beta", beta, 0.0)
        if data_collator is None:
            pad = processing_class.pad_token_id
            data_collator = GradedAnswersCollator(processing_class.eos_token_id if pad is None else pad)
        super().__init__(
            model,
            processing_class=processing_class,
            train_dataset=_tokenized(train_dataset, processing_class, max_length, "train"),
            eval_dataset=_tokenized(eval_dataset, processing_class, max_length, "eval"),
            data_collator=data_collator,
            **options,
        )
        self.model_accepts_loss_kwargs = (
            False  # the loss is a mean over prompts: Trainer averages over accumulated steps
        )
        self.can_return_loss = True
        self.label_names: list[str] = []
        reference = copy.deepcopy(model) if ref_model is None else ref_model
        self.ref_model = reference.to(self.args.device).requires_grad_(False).eval()

    def _loss_and_outputs(self, model: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
        tokens = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        outputs = model(**tokens, use_cache=False)
        with torch.no_grad():
            reference = sequence_logps(self.ref_model(**tokens, use_cache=False).logits, inputs)
        policy = sequence_logps(outputs.logits, inputs)
        return partition_dpo_loss(policy, reference, inputs["grades"], offsets_of(inputs), self.beta), outputs

    def prediction_step(
        self,
        model: Any,
        inputs: dict[str, Any],
        prediction_loss_only: bool,  # noqa: ARG002 (logits of all answers and words would fill the memory)
        ignore_keys: list[str] | None = None,  # noqa: ARG002
    ) -> tuple[Any, None, None]:
        """The loss of a batch of the evaluation set."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            return self.compute_loss(model, inputs).detach(), None, None
