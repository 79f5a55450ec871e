"""The networks that the neural estimators train.

features   feature handling that is fitted on training data and then is a part of the network
ranking    scores of the items of lists: perceptron, attention over the list
extreme    scores of very many labels from sparse features
"""

from plackett.networks.extreme import ExtremeNetwork, SparseRows
from plackett.networks.features import SCALINGS, FeatureScaling, RowScaling
from plackett.networks.ranking import ACTIVATIONS, RankingNetwork, make_hidden
from plackett.networks.top import top_columns

__all__ = [
    "ACTIVATIONS",
    "SCALINGS",
    "ExtremeNetwork",
    "FeatureScaling",
    "RankingNetwork",
    "RowScaling",
    "SparseRows",
    "make_hidden",
    "top_columns",
]
