"""Ma et al. (2021), "Learning-to-rank with partitioned preference: fast estimation for the Plackett-Luce model"."""
