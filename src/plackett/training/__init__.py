"""How networks are trained: one loop for all of them.

loop          epochs, early stopping, progress, checkpoints
optimisers    optimisers and schedules of the learning rate
checkpoints   the state of a training on disk
batches       which lists or rows go together
history       what was measured, epoch by epoch
search        several trainings: rates to choose from, members of an ensemble
workers       several processes that train one model
shards        files of what they hold in parts
"""

from plackett.training.batches import batches_of_lists, batches_of_rows
from plackett.training.checkpoints import Checkpoint
from plackett.training.history import History
from plackett.training.loop import Epoch, Settings, Task, seeded, train
from plackett.training.optimisers import OPTIMISERS, SCHEDULES
from plackett.training.search import Trained, train_members
from plackett.training.workers import LostProcessError, Workers, joined

__all__ = [
    "OPTIMISERS",
    "SCHEDULES",
    "Checkpoint",
    "Epoch",
    "History",
    "LostProcessError",
    "Settings",
    "Task",
    "Trained",
    "Workers",
    "batches_of_lists",
    "batches_of_rows",
    "joined",
    "seeded",
    "train",
    "train_members",
]
