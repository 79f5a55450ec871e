"""Jagerman, Kiseleva and de Rijke (2017): Modeling Label Ambiguity for Neural List-Wise Learning to Rank.

Start with `curves`, which has figure 2, NDCG by epoch of every loss. May import anything below `cli`.
"""
