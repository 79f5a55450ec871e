"""Experiments of the preprint "Plackett-Luce model for learning-to-rank task", which introduces PLRank.

One module per table or figure; start with `systems`, the models that they compare. May import anything below `cli`.
"""
