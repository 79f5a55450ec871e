"""Tagging: the best few of two thousand labels for a text, from sparse features.

python examples/tagging.py
"""

from plackett import ExtremeClassifier, metrics
from plackett.data import make_multilabel, train_validation_split

data = make_multilabel(3_000, 3_000, 2_000, labels_per_row=5, features_per_row=60, random_state=0)
train, test = train_validation_split(data, 0.25, random_state=0)

model = ExtremeClassifier(hidden_sizes=(128,), epochs=6, random_state=0, progress=False).fit(train)
labels, scores = model.predict_top(test.X, 5)
print("labels of the first row: ", test.Y[[0]].indices.tolist())
print("its five best guesses:   ", labels[0].tolist())
for k in (1, 3, 5):
    print(f"P@{k} {metrics.multilabel_precision(labels, test.Y, k=k):.3f}")
