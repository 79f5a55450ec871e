"""Search: learn from graded lists with boosted trees, judge on held-out queries, look at what was learnt.

python examples/search.py
"""

from rich.console import Console

from plackett import BoostedRanker
from plackett.data import make_graded_lists, train_validation_split
from plackett.evaluation import compare_systems, evaluate
from plackett.report import comparison_table, result_table

data, _ = make_graded_lists(300, mean_length=40, n_features=14, random_state=0)
train, test = train_validation_split(data, 0.3, random_state=0)
train, validation = train_validation_split(train, 0.25, random_state=0)

scores = {}
for objective in ("partition", "lambdamart", "listmle"):  # exact tiers, and what is common
    model = BoostedRanker(objective, n_estimators=200, early_stopping_rounds=30, random_state=0, progress=False)
    scores[objective] = model.fit(train, eval_set=validation).predict_data(test)

results = evaluate(test, scores, ["ndcg@10", "err@10"])
console = Console()
console.print(result_table(results, confidence=0.95))
console.print(comparison_table(compare_systems(results)))
