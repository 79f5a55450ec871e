"""Ma et al. (2021), "Learning-to-rank with partitioned preference: fast estimation for the Plackett-Luce model".

Start with `utilities` (figure 1). `costs` has the times, `statistics` the data sets, `multilabel_table` and
`embeddings` the classifiers, `midpoint_errors` the constants of the midpoint rule. May import anything below `cli`.
"""
