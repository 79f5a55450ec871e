"""From prompts with graded answers to batches of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from plackett.lists import IntArray, offsets_from_sizes

COLUMNS = ("answer_ids", "prompt_lengths", "grades")
"""The columns of tokenized examples: the ids of prompt and answer, the length of the prompt in them, the grades."""


def tokenize_answers(example: dict[str, Any], processing_class: Any) -> dict[str, Any]:
    """The token ids of a prompt with each of its answers, where the answer begins, and the grades.

    Plain texts get the tokenizer's end token. Conversations (lists of messages) go through its chat template.
    """
    answers, grades = _check_example(example)
    prompt = example.get("prompt") or ("" if isinstance(answers[0], str) else [])
    alone = _ids(prompt, processing_class, add_generation_prompt=True) if prompt else []
    whole = [_ids(_join(prompt, answer, processing_class), processing_class) for answer in answers]
    return {
        "answer_ids": whole,
        "prompt_lengths": [_common_prefix(alone, ids) for ids in whole],
        "grades": [float(grade) for grade in grades],
    }


def _check_example(example: dict[str, Any]) -> tuple[Sequence[Any], Sequence[float]]:
    missing = [name for name in ("answers", "grades") if example.get(name) is None]
    if missing:
        raise ValueError(
            f"examples must have the columns answers and grades, and prompt if there is one, got {', '.join(example)}: "
            f"{' and '.join(missing)} missing"
        )
    if "margin" in example:
        raise ValueError("examples must not have a column margin: grades say which answer is better, not by how much")
    answers, grades = example["answers"], example["grades"]
    if len(answers) != len(grades) or not len(answers):
        raise ValueError(
            f"grades must hold one number per answer, and there must be an answer, got {len(grades)} grades for "
            f"{len(answers)} answers"
        )
    return answers, grades


def _join(prompt: Any, answer: Any, processing_class: Any) -> Any:
    if isinstance(prompt, str) != isinstance(answer, str):
        raise ValueError("prompt and answers must both be texts or both be lists of messages, got one of each")
    if not isinstance(answer, str):
        return [*prompt, *answer]
    end = processing_class.eos_token or ""
    return prompt + answer + ("" if answer.endswith(end) else end)


def _ids(text: Any, processing_class: Any, **options: Any) -> list[int]:
    if isinstance(text, str):
        return list(processing_class(text=text)["input_ids"])
    return list(processing_class.apply_chat_template(text, tokenize=True, return_dict=True, **options)["input_ids"])


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@dataclass
class GradedAnswersCollator:
    """Pads the answers of all prompts of a batch to one length: a collator for transformers' Trainer.

    A batch holds input_ids and attention_mask, (answers, tokens); completion_mask marks the tokens of answers;
    grades, (answers,); sizes, (prompts,), the number of answers of each prompt. Examples have the columns of `COLUMNS`.
    """

    pad_token_id: int
    pad_to_multiple_of: int | None = None

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        rows = [ids for example in examples for ids in example["answer_ids"]]
        begins = [begin for example in examples for begin in example["prompt_lengths"]]
        multiple = self.pad_to_multiple_of or 1
        width = -(-max(map(len, rows), default=0) // multiple) * multiple
        ids = torch.full((len(rows), width), self.pad_token_id)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row)
        place = torch.arange(width)
        mask = place < torch.tensor([len(row) for row in rows])[:, None]
        return {
            "input_ids": ids,
            "attention_mask": mask.long(),
            "completion_mask": (mask & (place >= torch.tensor(begins)[:, None])).long(),
            "grades": torch.tensor([grade for example in examples for grade in example["grades"]]),
            "sizes": torch.tensor([len(example["grades"]) for example in examples]),
        }


def offsets_of(batch: dict[str, Tensor]) -> IntArray:
    """The offsets of the prompts in a batch."""
    return offsets_from_sizes(batch["sizes"].cpu().numpy())


def sequence_logps(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The log probability of each answer given its prompt, summed over its tokens, in float32."""
    logps = torch.log_softmax(logits[:, :-1].float(), -1)
    chosen = torch.gather(logps, -1, batch["input_ids"][:, 1:, None]).squeeze(-1)
    return torch.where(batch["completion_mask"][:, 1:] > 0, chosen, 0.0).sum(-1)


def pair_accuracy(rewards: Tensor, batch: dict[str, Tensor]) -> float:
    """The share of pairs of answers with different grades whose rewards are in the same order; ties count half."""
    list_of = torch.repeat_interleave(batch["sizes"])
    better = (list_of[:, None] == list_of) & (batch["grades"][:, None] > batch["grades"])
    difference = rewards.detach()[:, None] - rewards.detach()
    right = (difference > 0).float() + 0.5 * (difference == 0).float()
    return float(right[better].mean()) if bool(better.any()) else float("nan")
