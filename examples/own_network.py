"""Own network: use the exact loss in your own PyTorch training loop. It is a function of scores and labels.

python examples/own_network.py
"""

from pathlib import Path

import torch

from plackett import losses, metrics
from plackett.data import make_graded_lists
from plackett.report.page import Axis, LinePlot, Section, Series, draw_picture

data, _ = make_graded_lists(200, mean_length=40, n_features=14, random_state=0)
torch.manual_seed(0)
features = torch.as_tensor((data.X - data.X.mean(0)) / data.X.std(0), dtype=torch.float32)
network = torch.nn.Sequential(torch.nn.Linear(14, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimiser = torch.optim.Adam(network.parameters(), 0.01)

curve = []
for epoch in range(30):
    scores = network(features).squeeze(1)
    loss = losses.partition_loss(scores, data.y, offsets=data.offsets)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    curve.append(metrics.ndcg(scores.detach().numpy(), data.y, k=10, offsets=data.offsets))
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1}: loss {loss.item():.1f}, NDCG@10 {curve[-1]:.2f}")

plot = LinePlot([Series("training lists", curve)], Axis("epoch"), Axis("NDCG@10"))
Path("own_network.png").write_bytes(draw_picture([Section("", [plot])]))
