"""Next-token prediction: the limits of training on any data, with explicit constants. arXiv 2402.18551 and 2403.08081.

W denotes the weights, θ_mm (W^mm) the limit direction, P_FW the part of W in a subspace F, θ_⋆ (W⋆) the limit of P_FW.

| statement | content |
|---|---|
| `ntp_extended_supports` | the alternatives that training cannot separate; the loss in two parts; its gradient |
| `ntp_entropy` | Proposition 1: the entropy is approached and not attained |
| `ntp_overparameterized` | Lemma 1: independent embeddings are compatible and separable |
| `ntp_path` | Theorem 1: the regularization path turns to θ_mm, its part in F to θ_⋆; sublevel sets |
| `ntp_descent` | Theorem 2: gradient descent turns to θ_mm, its part in F to θ_⋆, from any start |
| `ntp_finite_part` | a bound, at every step, of the distance from P_FW to θ_⋆ under gradient descent |
| `ntp_attention` | attention that predicts a token by its mass: strongly connected components and graph-SVM |
| `conjecture_ntp_normalized` | normalized steps do not accelerate where F ≠ 0 |
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Next-token prediction",
    "Thrampoulidis, arXiv 2402.18551; Li et al., arXiv 2403.08081; own",
    statements="theorems.next_token",
    without="theorems.next_token.without",
    faults="theorems.next_token.faults",
    after=("token-selection", "transformers-as-svms", "steepest-descent"),
)
