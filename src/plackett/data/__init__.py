"""Ranking data: containers, readers and writers, generators, splits.

containers    RankingData, MultilabelData, Ballots
letor, xmc, preflib, rankings_csv, frames, scores   a reader and a writer each
formats       which format a file has, and `load` for any of them
description   what a data set is like
generators    simulated data with known truth
splits        folds, and putting parts together
files, cache, sparse_text, kernels   what readers share
"""

from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.data.description import Description, describe
from plackett.data.formats import FORMATS, detect_format, load
from plackett.data.frames import dump_parquet, from_frame, load_parquet, to_arrow
from plackett.data.generators import (
    MULTILABEL_SHAPES,
    MultilabelShape,
    make_clicks,
    make_graded_lists,
    make_multilabel,
    make_multilabel_like,
    make_partitions,
    make_tiered_lists,
)
from plackett.data.letor import dump_group, dump_letor, load_group, load_letor
from plackett.data.preflib import dump_preflib, load_preflib
from plackett.data.rankings_csv import dump_rankings_csv, load_rankings_csv
from plackett.data.scores import dump_scores, load_scores
from plackett.data.splits import Fold, concatenate, k_fold, letor_folds, train_validation_split
from plackett.data.xmc import dump_xmc, load_xmc

__all__ = [
    "FORMATS",
    "MULTILABEL_SHAPES",
    "Ballots",
    "Description",
    "Fold",
    "MultilabelData",
    "MultilabelShape",
    "RankingData",
    "concatenate",
    "describe",
    "detect_format",
    "dump_group",
    "dump_letor",
    "dump_parquet",
    "dump_preflib",
    "dump_rankings_csv",
    "dump_scores",
    "dump_xmc",
    "from_frame",
    "k_fold",
    "letor_folds",
    "load",
    "load_group",
    "load_letor",
    "load_parquet",
    "load_preflib",
    "load_rankings_csv",
    "load_scores",
    "load_xmc",
    "make_clicks",
    "make_graded_lists",
    "make_multilabel",
    "make_multilabel_like",
    "make_partitions",
    "make_tiered_lists",
    "to_arrow",
    "train_validation_split",
]
