"""The networks that the neural estimators train.

features   feature handling that is fitted on training data and then is a part of the network
ranking    scores of the items of lists: perceptron, attention over the list
extreme    scores of very many labels from sparse features
top        the best of very many labels
weights    weights from files
whole      feature handling and an ensemble as one module
kernels    compiled parts
"""

from plackett.networks.extreme import ExtremeNetwork, SparseRows, sharded_weights
from plackett.networks.features import SCALINGS, FeatureScaling, RowScaling
from plackett.networks.ranking import ACTIVATIONS, RankingNetwork, make_hidden
from plackett.networks.top import top_columns
from plackett.networks.weights import check_weights, set_weights
from plackett.networks.whole import WholeModel

__all__ = [
    "ACTIVATIONS",
    "SCALINGS",
    "ExtremeNetwork",
    "FeatureScaling",
    "RankingNetwork",
    "RowScaling",
    "SparseRows",
    "WholeModel",
    "check_weights",
    "make_hidden",
    "set_weights",
    "sharded_weights",
    "top_columns",
]
