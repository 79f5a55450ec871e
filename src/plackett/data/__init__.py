"""Ranking data: containers, file readers and writers, generators and splits.

Start with `containers`, then `formats`. May import `likelihood`, `distribution` and the modules below them; not
`metrics`, nor any model.

containers      RankingData, MultilabelData with its label matrices, Ballots; also comparisons, preference_graphs
listed_rows     checked rows in lists, the form in which all rankers are fitted
formats         detects a file's format and picks the reader: letor, xmc, preflib, rankings_csv or frames
                comparison_tables reads comparisons of two sides, scores reads predictions
shared          by readers: files, sparse_text, csv_table, csv_columns, parsing_kernels; factors numbers names
untrusted       JSON and arrays that anyone may have written; parquet_sizes bounds tables, text makes names safe
clicks          labels from logs of clicks; positions holds what models learn about positions
description     summarises a data set; splits makes folds, and hashes identifies data
generators      simulated data with known truth
"""

from plackett.data.clicks import ClickLabels, cascade_labels, last_click_labels
from plackett.data.comparison_tables import load_comparisons
from plackett.data.comparisons import Comparisons, Factor
from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.data.description import Description, describe
from plackett.data.formats import FORMATS, detect_format, load
from plackett.data.frames import dump_parquet, from_frame, load_parquet, to_arrow
from plackett.data.generators import (
    MULTILABEL_SHAPES,
    ClickTruth,
    MultilabelShape,
    make_clicks,
    make_graded_lists,
    make_multilabel,
    make_multilabel_like,
    make_partitions,
    make_tiered_lists,
)
from plackett.data.letor import dump_group, dump_letor, load_group, load_letor, load_lightgbm
from plackett.data.positions import PositionBias
from plackett.data.preference_graphs import PreferenceGraphs, load_preference_graphs
from plackett.data.preflib import dump_preflib, load_preflib
from plackett.data.rankings_csv import dump_rankings_csv, load_rankings_csv
from plackett.data.scores import dump_scores, load_scores
from plackett.data.splits import Fold, concatenate, k_fold, letor_folds, train_validation_split
from plackett.data.xmc import dump_xmc, load_xmc

__all__ = [
    "FORMATS",
    "MULTILABEL_SHAPES",
    "Ballots",
    "ClickLabels",
    "ClickTruth",
    "Comparisons",
    "Description",
    "Factor",
    "Fold",
    "MultilabelData",
    "MultilabelShape",
    "PositionBias",
    "PreferenceGraphs",
    "RankingData",
    "cascade_labels",
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
    "last_click_labels",
    "letor_folds",
    "load",
    "load_comparisons",
    "load_group",
    "load_letor",
    "load_lightgbm",
    "load_parquet",
    "load_preference_graphs",
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
