"""Reward models and DPO from graded answers, with the real TRL."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from tiny_models import WORDS, make_language_model
from transformers import TrainingArguments
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

from plackett.integrations.trl import (
    GradedAnswersCollator,
    PartitionDPOTrainer,
    PartitionRewardTrainer,
    partition_dpo_loss,
)
from plackett.losses import partition_loss

# TRL itself sets what transformers has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning")
CHAT = "{% for m in messages %}{{ m['content'] + ' ' }}{% endfor %}"


def text(rng, length=4):
    return " ".join(rng.choice(WORDS, length))


def pairs(count, seed=0):
    """Prompts with a chosen and a rejected answer, in TRL's columns and in ours; the worse answer comes first."""
    rng = np.random.default_rng(seed)
    rows = [(f"{text(rng)} ", text(rng, 3), text(rng, 2)) for _ in range(count)]
    prompts, chosen, rejected = (list(column) for column in zip(*rows, strict=True))
    theirs = Dataset.from_dict({"prompt": prompts, "chosen": chosen, "rejected": rejected})
    answers = [[b, a] for a, b in zip(chosen, rejected, strict=True)]
    ours = Dataset.from_dict({"prompt": prompts, "answers": answers, "grades": [[0, 1]] * count})
    return theirs, ours


def graded(count, seed=0):
    """Prompts with two to five answers; a grade is the number of words "cat" and "dog" in it, at most 2."""
    rng = np.random.default_rng(seed)
    answers = [[text(rng, 3) for _ in range(rng.integers(2, 6))] for _ in range(count)]
    grades = [[min(2, sum(word in ("cat", "dog", "bird") for word in a.split())) for a in row] for row in answers]
    return Dataset.from_dict({"prompt": [f"{text(rng)} " for _ in answers], "answers": answers, "grades": grades})


def settings(kind, folder, **options):
    common = {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "bf16": False}
    return kind(output_dir=str(folder), **common | options)


def first_loss(trainer):
    """Value and gradients of the first batch, without dropout or accumulation."""
    trainer.model.train()
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, next(iter(trainer.get_eval_dataloader())))
    loss.backward()
    return float(loss.detach()), {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}


def same(one, other):
    assert one[0] == pytest.approx(other[0], abs=1e-6)
    assert set(one[1]) == set(other[1])
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("center", [None, 0.1])
def test_two_answers_give_the_reward_loss_of_trl(tmp_path, center):
    theirs, ours = pairs(6)
    found = []
    for kind, data in ((RewardTrainer, theirs), (PartitionRewardTrainer, ours)):
        model, tokenizer = make_language_model(classifier=True)
        args = settings(RewardConfig, tmp_path, per_device_eval_batch_size=6, center_rewards_coefficient=center)
        found.append(first_loss(kind(model, args, train_dataset=data, eval_dataset=data, processing_class=tokenizer)))
    same(*found)
    assert found[0][0] > 0.1


def test_two_answers_give_the_sigmoid_loss_of_trl(tmp_path):
    theirs, ours = pairs(6)
    found = []
    for kind, data in ((DPOTrainer, theirs), (PartitionDPOTrainer, ours)):
        model, tokenizer = make_language_model(classifier=False)
        reference, _ = make_language_model(classifier=False)
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter.mul_(0.9)
        config = DPOConfig if kind is DPOTrainer else TrainingArguments
        args = settings(
            config, tmp_path, per_device_eval_batch_size=6, **({"beta": 0.3} if config is DPOConfig else {})
        )
        options = {} if kind is DPOTrainer else {"beta": 0.3}
        trainer = kind(
            model, reference, args=args, train_dataset=data, eval_dataset=data, processing_class=tokenizer, **options
        )
        found.append(first_loss(trainer))
    same(*found)
    assert found[0][0] != pytest.approx(np.log(2), abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dpo_loss_of_pairs_is_the_sigmoid_loss(dtype):
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 40, generator=generator, dtype=dtype) * 20
    policy.requires_grad_()
    grades = torch.tensor([1, 0, 2, 5] * 10)
    better = torch.where(grades[::2] > grades[1::2], 1.0, -1.0).to(dtype)
    ratio = policy - reference
    expected = -torch.nn.functional.logsigmoid(0.1 * better * (ratio[::2] - ratio[1::2])).mean()
    found = partition_dpo_loss(policy, reference, grades, np.arange(0, 41, 2))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    one, other = (torch.autograd.grad(value, policy)[0] for value in (found, expected))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_dpo_loss_of_k_answers_is_that_of_their_rewards():
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    grades, offsets = [2, 1, 1, 0, 3, 3, 3], [0, 4, 7]
    found = partition_dpo_loss(policy, reference, grades, offsets, beta=2.0, weights=[1.0, 3.0])
    expected = partition_loss(2.0 * (policy - reference), grades, offsets=offsets, weights=[1.0, 3.0])
    assert float(found) == float(expected)
    untied = partition_dpo_loss(policy[:4], reference[:4], [3, 2, 1, 0], [0, 4], beta=2.0)
    rewards = 2.0 * (policy - reference)[:4]
    longhand = -sum(rewards[k] - torch.logsumexp(rewards[k:], 0) for k in range(4))
    assert float(untied) == pytest.approx(float(longhand), abs=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": -1.0}, "beta must be at least 0"),
        ({"reference_logps": torch.zeros(3)}, r"one value per answer, got shapes \(2,\) and \(3,\)"),
        ({"policy_logps": torch.zeros(2, dtype=torch.int64)}, "policy_logps must be"),
        ({"offsets": [0, 3]}, "offsets must end with the number of items"),
    ],
)
def test_bad_dpo_arguments_are_refused(changes, message):
    given = {"policy_logps": torch.zeros(2), "reference_logps": torch.zeros(2), "grades": [1, 0], "offsets": [0, 2]}
    with pytest.raises((ValueError, TypeError), match=message):
        partition_dpo_loss(**given | changes)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_reward_model_learns_from_graded_answers(tmp_path, accumulation):
    model, tokenizer = make_language_model(classifier=True)
    args = settings(
        RewardConfig, tmp_path, num_train_epochs=4, per_device_train_batch_size=8, learning_rate=2e-2, logging_steps=2,
        gradient_accumulation_steps=accumulation, eval_strategy="epoch",
    )  # fmt: skip
    trainer = PartitionRewardTrainer(
        model, args, train_dataset=graded(48), eval_dataset=graded(16, seed=1), processing_class=tokenizer
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < 0.7 * before["eval_loss"]
    assert after["eval_accuracy"] > before["eval_accuracy"]


def test_accumulated_steps_take_the_mean_step(tmp_path):
    """Two batches of four prompts, accumulated, move the weights as one batch of eight does."""
    found = []
    for size, accumulation in ((8, 1), (4, 2)):
        model, tokenizer = make_language_model(classifier=True)
        args = settings(
            RewardConfig, tmp_path, max_steps=2, per_device_train_batch_size=size, learning_rate=0.1, optim="sgd",
            gradient_accumulation_steps=accumulation, max_grad_norm=0.0, lr_scheduler_type="constant",
        )  # fmt: skip
        trainer = PartitionRewardTrainer(model, args, train_dataset=graded(8), processing_class=tokenizer)
        trainer.train()
        found.append(trainer.model.state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-6, msg=name)


def test_other_losses_train_reward_models(tmp_path):
    model, tokenizer = make_language_model(classifier=True)
    trainer = PartitionRewardTrainer(
        model, settings(RewardConfig, tmp_path, max_steps=1), train_dataset=graded(8), processing_class=tokenizer,
        loss="lower_bound",
    )  # fmt: skip
    assert trainer.ranking_loss.name == "lower_bound"
    trainer.train()


def test_dpo_learns_from_graded_answers(tmp_path):
    model, tokenizer = make_language_model(classifier=False)
    args = settings(
        TrainingArguments, tmp_path, num_train_epochs=4, per_device_train_batch_size=8, learning_rate=1e-2,
        eval_strategy="epoch",
    )  # fmt: skip
    trainer = PartitionDPOTrainer(
        model, args=args, train_dataset=graded(48), eval_dataset=graded(16, seed=1), processing_class=tokenizer
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.9 * before
    assert all(not parameter.requires_grad for parameter in trainer.ref_model.parameters())


def test_conversations_go_through_the_chat_template(tmp_path):
    model, tokenizer = make_language_model(classifier=True)
    tokenizer.chat_template = CHAT
    say = lambda role, content: [{"role": role, "content": content}]  # noqa: E731
    data = Dataset.from_dict({
        "prompt": [say("user", "what sings")], "answers": [[say("assistant", "the bird"), say("assistant", "a stone")]],
        "grades": [[1, 0]],
    })  # fmt: skip
    trainer = PartitionRewardTrainer(
        model, settings(RewardConfig, tmp_path), train_dataset=data, processing_class=tokenizer
    )
    row = trainer.train_dataset[0]
    assert tokenizer.decode(row["answer_ids"][0]).split() == ["what", "sings", "the", "bird"]
    assert row["prompt_lengths"] == [2, 2]


def test_collator_pads_answers_and_keeps_prompts_apart():
    batch = GradedAnswersCollator(pad_token_id=9, pad_to_multiple_of=4)([
        {"answer_ids": [[1, 2, 3], [1, 2]], "prompt_lengths": [1, 1], "grades": [1.0, 0.0]},
        {"answer_ids": [[4, 5, 6, 7, 8]], "prompt_lengths": [2], "grades": [2.0]},
    ])  # fmt: skip
    assert batch["input_ids"].tolist() == [
        [1, 2, 3, 9, 9, 9, 9, 9], [1, 2, 9, 9, 9, 9, 9, 9], [4, 5, 6, 7, 8, 9, 9, 9],
    ]  # fmt: skip
    assert batch["attention_mask"].sum(-1).tolist() == [3, 2, 5]
    assert batch["completion_mask"].tolist()[2] == [0, 0, 1, 1, 1, 0, 0, 0]
    assert batch["sizes"].tolist() == [2, 1]
    assert batch["grades"].tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]}, "must have the columns answers and grades"),
        ({"answers": [["a", "b"]], "grades": [[1]]}, "one number per answer.*got 1 grades for 2 answers"),
        ({"answers": [["a"]], "grades": [[1]], "margin": [1.0]}, "must not have a column margin"),
        ({"prompt": [[{"role": "user", "content": "a"}]], "answers": [["a"]], "grades": [[1]]}, "both be texts"),
    ],
)
def test_malformed_examples_are_refused(tmp_path, columns, message):
    model, tokenizer = make_language_model(classifier=True)
    tokenizer.chat_template = CHAT
    with pytest.raises(ValueError, match=message):
        PartitionRewardTrainer(
            model,
            settings(RewardConfig, tmp_path),
            train_dataset=Dataset.from_dict(columns),
            processing_class=tokenizer,
        )


def test_long_answers_are_left_out_with_a_warning(tmp_path):
    model, tokenizer = make_language_model(classifier=True)
    data = Dataset.from_dict({"answers": [["a cat", "a"], ["a " * 30, "a"]], "grades": [[1, 0], [1, 0]]})
    with pytest.warns(UserWarning, match="1 of 2 examples of the train dataset are left out"):
        trainer = PartitionRewardTrainer(
            model, settings(RewardConfig, tmp_path, max_length=10), train_dataset=data, processing_class=tokenizer
        )
    assert len(trainer.train_dataset) == 1
