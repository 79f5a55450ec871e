"""Neural models: networks, the tasks they are trained on, and the training loop.

Start with `training_loop` (epochs, early stopping, checkpoints), then `ranking_task` and `extreme_task`, which define
batches, losses and validation metrics. May import losses, metrics, data, likelihood and the foundation; never
`distributed` or `estimators`.

ranking_task, ranking_network                  lists of items: data, loss and metrics; the network
extreme_task, extreme_data, extreme_network    very many labels: loss and metrics; data; the network
ridge_paths                                    ridge regression alongside the networks for very many labels
regularizers                                   changes to the loss of networks for very many labels
extreme_prediction, top_labels, top_kernels    scores and best labels, a block of rows at a time
feature_scaling                                feature scaling, saved and exported with the network
training_loop                                  one training: its settings, optimisers and history
ensemble_training                              several trainings: learning rates to choose from, members of an ensemble
processes                                      the processes that train together, as the training loop sees them
checkpoints, tensor_files, weights             training state and weights on disk
onnx_export                                    a fitted model as one ONNX file
"""

from plackett.neural.checkpoints import NetworkCheckpoint
from plackett.neural.extreme_data import batches_of_rows
from plackett.neural.networks import (
    ACTIVATIONS,
    SCALINGS,
    ExtremeNetwork,
    FeatureScaling,
    RankingNetwork,
    RowScaling,
    SparseRows,
    make_hidden,
    sharded_weights,
)
from plackett.neural.onnx_export import ScaledEnsemble
from plackett.neural.ranking_task import batches_of_lists
from plackett.neural.top_labels import top_columns
from plackett.neural.training import (
    OPTIMISERS,
    SCHEDULES,
    Epoch,
    History,
    Task,
    TrainedEnsemble,
    TrainingSettings,
    seeded,
    train,
    train_members,
)
from plackett.neural.weights import check_weights, set_weights

__all__ = [
    "ACTIVATIONS",
    "OPTIMISERS",
    "SCALINGS",
    "SCHEDULES",
    "Epoch",
    "ExtremeNetwork",
    "FeatureScaling",
    "History",
    "NetworkCheckpoint",
    "RankingNetwork",
    "RowScaling",
    "ScaledEnsemble",
    "SparseRows",
    "Task",
    "TrainedEnsemble",
    "TrainingSettings",
    "batches_of_lists",
    "batches_of_rows",
    "check_weights",
    "make_hidden",
    "seeded",
    "set_weights",
    "sharded_weights",
    "top_columns",
    "train",
    "train_members",
]
