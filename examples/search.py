"""Search: learn from graded lists with boosted trees and compare objectives on held-out queries.

python examples/search.py
"""

from pathlib import Path

from rich.console import Console

from plackett import BoostedRanker
from plackett.data import make_graded_lists, train_validation_split
from plackett.evaluation import compare_systems, evaluate
from plackett.report import comparison_table, result_table
from plackett.report.page import Axis, ItemPlot, Section, Series, draw_picture

data, _ = make_graded_lists(300, mean_length=40, n_features=14, random_state=0)
train, test = train_validation_split(data, 0.3, random_state=0)
train, validation = train_validation_split(train, 0.25, random_state=0)

scores = {}
for objective in ("partition", "lambdamart", "listmle"):  # exact tiers, and two common objectives
    model = BoostedRanker(objective, n_estimators=200, early_stopping_rounds=30, random_state=0, progress=False)
    scores[objective] = model.fit(train, eval_set=validation).predict_data(test)

results = evaluate(test, scores, ["ndcg@10", "err@10"])
console = Console(width=100)
console.print(result_table(results, confidence=0.95))
console.print(comparison_table(compare_systems(results)))

found = [result for result in results if result.metric == "ndcg@10"]
low, high = zip(*(result.interval for result in found), strict=True)
series = Series("NDCG@10", [result.value for result in found], low=low, high=high)
plot = ItemPlot([result.system for result in found], [series], Axis("NDCG@10 on held-out queries, with 95% interval"))
Path("search.png").write_bytes(draw_picture([Section("", [plot])]))
