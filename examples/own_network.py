"""Your own network and training loop in PyTorch: the exact loss is a function of scores and labels.

python examples/own_network.py
"""

import torch

from plackett import losses, metrics
from plackett.data import make_graded_lists

data, _ = make_graded_lists(200, mean_length=40, n_features=14, random_state=0)
features = torch.as_tensor((data.X - data.X.mean(0)) / data.X.std(0), dtype=torch.float32)
network = torch.nn.Sequential(torch.nn.Linear(14, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimiser = torch.optim.Adam(network.parameters(), 0.01)

for epoch in range(30):
    scores = network(features).squeeze(1)
    loss = losses.partition_loss(scores, data.y, offsets=data.offsets)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if epoch % 10 == 9:
        ndcg = metrics.ndcg(scores.detach().numpy(), data.y, k=10, offsets=data.offsets)
        print(f"epoch {epoch + 1}: loss {loss.item():.2f}, NDCG@10 {ndcg:.3f}")
