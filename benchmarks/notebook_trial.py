"""A random trial as often written in notebooks: a PyTorch module, automatic differentiation, SGD, recorded path."""

from __future__ import annotations

import numpy as np
import torch


class PromptAttention(torch.nn.Module):
    """Map from an input X to γᵀ softmax(X p), with a trained prompt p and given scores γ."""

    def __init__(self, d: int) -> None:
        """Start the prompt at p = 0, with d entries."""
        super().__init__()
        self.key = torch.nn.Identity()
        self.prompt = torch.nn.Parameter(torch.zeros(d, dtype=torch.float64))

    def forward(self, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return γᵀ softmax(X p) for each input, (n,), given tokens X, (n, T, d), and scores γ, (n, T)."""
        prompts = self.prompt.unsqueeze(0).expand(tokens.shape[0], 1, -1)
        attention = torch.softmax(torch.bmm(prompts, self.key(tokens).transpose(1, 2)), dim=-1)
        return torch.bmm(attention, scores.unsqueeze(-1)).view(-1)


def path(keys: np.ndarray, scores: np.ndarray, steps: int) -> np.ndarray:
    """Return the iterates p(0) = 0, p(1), … of normalized descent with steps of length one, (steps + 1, d)."""
    tokens, gamma = torch.from_numpy(keys), torch.from_numpy(scores)
    model = PromptAttention(keys.shape[-1])
    optimizer = torch.optim.SGD([model.prompt], lr=1.0)
    points = np.zeros((steps + 1, keys.shape[-1]))
    for t in range(steps):
        optimizer.zero_grad()
        loss = torch.log(1 + torch.exp(-model(tokens, gamma))).mean()
        loss.backward()
        assert model.prompt.grad is not None
        model.prompt.grad /= model.prompt.grad.norm()
        optimizer.step()
        points[t + 1] = model.prompt.detach().numpy()
    return points
