"""*Transformers as Support Vector Machines* (arXiv 2308.16898): statements about training the key-query weights W.

softmax(X_i W z_i) is the attention of *Max-Margin Token Selection* on the keys vec(x_it z_iᵀ), its prompt vec(W).
Statements that follow word for word make the same claims here; the others state what rank-one keys change.

| statement | what it says |
|---|---|
| `risk_floor` | optimal tokens minimise the risk |
| `rank` | solutions have rank at most n |
| `feasibility` | every choice of tokens is separable where dimensions are large |
| `frobenius_path` | the regularization path turns to W^mm |
| `nuclear_path` | the path of (K, Q) turns to W_⋆, of least nuclear norm |
| `first_step` | gradient descent after a first step that separates |
| `no_stationary_point` | where ∇L does not vanish, whatever W |
| `local_descent` | gradient descent in a cone around locally optimal tokens |
| `local_path` | the regularization path in that cone |
| `factored_flow` | gradient flow on the factors (K, Q) |
| `factored_descent` | gradient descent on the factors (K, Q) |
| `sequence` | several queries per input, causal or not |
| `exact_support` | attention that selects exactly τ tokens |
| `mixing` | W ≈ W_fin + ‖W‖ W̄^mm where attention mixes, and what else stays finite |
| `conjecture_mixing` | under a ReLU head W grows along Gen-SVM of the selected tokens, along descent |
| `conjecture_independent_rows` | independent rows: almost every flow ends at locally optimal tokens |

The paper's own text could not be read: statements are named by content, not by number; its numbers are from memory.
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Transformers as Support Vector Machines",
    "Ataee Tarzanagh, Li, Thrampoulidis, Oymak, arXiv 2308.16898",
    statements="theorems.transformers_as_svms",
    without="theorems.transformers_as_svms.without",
    faults="theorems.transformers_as_svms.faults",
    figures="theorems.transformers_as_svms.figures",
    after=("token-selection",),
    prefix="tsvm-",
    explained=(),
)
