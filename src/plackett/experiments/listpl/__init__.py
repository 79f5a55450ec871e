"""Jagerman, Kiseleva and de Rijke (2017): Modeling Label Ambiguity for Neural List-Wise Learning to Rank."""
