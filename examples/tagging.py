"""Tagging: predict the best five of two thousand labels from sparse features.

python examples/tagging.py
"""

from pathlib import Path

from plackett import ExtremeClassifier, metrics
from plackett.data import make_multilabel, train_validation_split
from plackett.report.page import Axis, LinePlot, Section, Series, draw_picture

data = make_multilabel(3_000, 3_000, 2_000, labels_per_row=5, features_per_row=60, random_state=0)
train, test = train_validation_split(data, 0.25, random_state=0)

model = ExtremeClassifier(hidden_sizes=(128,), epochs=6, random_state=0, progress=False).fit(train)
labels, scores = model.predict_top(test.X, 5)
print("labels of the first row: ", test.Y[[0]].indices.tolist())
print("its five best guesses:   ", labels[0].tolist())
cutoffs = [1, 2, 3, 4, 5]
precision = [metrics.multilabel_precision(labels, test.Y, k=k) for k in cutoffs]
recall = [metrics.multilabel_recall(labels, test.Y, k=k) for k in cutoffs]
for k in (1, 3, 5):
    print(f"P@{k} {precision[k - 1]:.2f}, recall@{k} {recall[k - 1]:.2f}")

plot = LinePlot([Series("precision", precision), Series("recall", recall)], Axis("labels shown, k"), Axis("share"))
Path("tagging.png").write_bytes(draw_picture([Section("", [plot])]))
