"""Reward models and direct preference optimisation from several graded answers per prompt, with TRL.

    from plackett.integrations.trl import PartitionRewardTrainer
    trainer = PartitionRewardTrainer(model, train_dataset=dataset, args=RewardConfig(...))

The data have the columns prompt, answers (a list per prompt, of any length) and grades (one per answer, higher is
better; equal grades are ties). Start with `losses`, which needs only torch; `answers` turns examples into batches, and
`trainers` needs TRL. May import `losses` and everything below.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plackett.integrations.trl.answers import GradedAnswersCollator as GradedAnswersCollator
    from plackett.integrations.trl.losses import partition_dpo_loss as partition_dpo_loss
    from plackett.integrations.trl.trainers import PartitionDPOTrainer as PartitionDPOTrainer
    from plackett.integrations.trl.trainers import PartitionRewardTrainer as PartitionRewardTrainer

_HOME = {
    "GradedAnswersCollator": "answers",
    "PartitionDPOTrainer": "trainers",
    "PartitionRewardTrainer": "trainers",
    "partition_dpo_loss": "losses",
}

__all__ = ["GradedAnswersCollator", "PartitionDPOTrainer", "PartitionRewardTrainer", "partition_dpo_loss"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"plackett.integrations.trl.{_HOME[name]}"), name)
    raise AttributeError(f"module 'plackett.integrations.trl' has no attribute {name!r}")
