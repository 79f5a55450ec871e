"""Neural models: networks, how they are fitted to lists and to very many labels, and training.

Start with `training` (epochs, early stopping, ensembles), then `ranking_task` and `extreme_fitting`, which define
batches, losses and validation metrics. May import losses, metrics, data, likelihood and the foundation; never
`distributed` or `estimators`.

training                             one training run: its processes, settings, optimisers and history; ensembles
networks                             feature scaling, hidden layers, networks for lists and for very many labels
ranking_task                         lists of items: data, loss and metrics
extreme_fitting                      very many labels: settings by the size of the data, loss, task, fitting
ridge_paths, gram_kernels            ridge regression alongside the networks for very many labels
regularizers                         changes to the loss of networks for very many labels
extreme_prediction                   scores, best labels and metrics, a block of rows at a time
top_labels, top_kernels              the best labels of each row
calibration                          probabilities of labels from scores
small_work                           one thread for little work
checkpoints, tensor_files, weights   training state and weights on disk
onnx_export                          a fitted model as one ONNX file
"""

from plackett.neural.checkpoints import NetworkCheckpoint
from plackett.neural.extreme_fitting import batches_of_rows
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
