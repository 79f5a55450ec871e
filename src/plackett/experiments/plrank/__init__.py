"""The preprint "Plackett-Luce model for learning-to-rank task", which presents PLRank."""
