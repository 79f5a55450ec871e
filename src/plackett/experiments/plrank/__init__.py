"""Experiments of the preprint "Plackett-Luce model for learning-to-rank task", which introduces PLRank.

One module per table or figure, `table_1` to `table_5` and `figure_1` to `figure_3`; start with `systems`, the models
that they compare. May import anything below `cli`.
"""
