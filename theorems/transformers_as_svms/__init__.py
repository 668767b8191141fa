"""*Transformers as Support Vector Machines* (arXiv 2308.16898): statements about training the key-query weights W.

softmax(X_i W z_i) is the attention of *Max-Margin Token Selection* with the keys vec(x_it z_iᵀ) and the prompt vec(W).
Where a statement follows from this substitution, its claims are those of the first paper; the other statements rely on
keys of rank one.

| statement | content |
|---|---|
| `risk_floor` | optimal tokens minimise the risk |
| `rank` | solutions have rank at most n |
| `feasibility` | every choice of tokens is separable if dimensions are large |
| `frobenius_path` | the regularization path converges in direction to W^mm, of least Frobenius norm |
| `nuclear_path` | the path of (K, Q) converges in direction to W_⋆, of least nuclear norm |
| `first_step` | gradient descent after a first step that separates the optimal tokens |
| `no_stationary_point` | data for which ∇L vanishes at no W |
| `local_descent` | gradient descent in a cone around locally optimal tokens |
| `local_path` | the regularization path in such a cone |
| `factored_descent` | gradient descent on the factors (K, Q) |
| `sequence` | several queries per input, causal or not |
| `exact_support` | attention that selects exactly τ tokens |
| `mixing` | if attention mixes tokens, W grows in one direction; a closed form of the part of W that stays bounded |
| `conjecture_mixing` | with a ReLU head, W grows along the max-margin solution (Gen-SVM) of the selected tokens |

We could not read the paper's text: modules are named by content, and the numbers of its theorems are from memory.
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Transformers as Support Vector Machines",
    "Ataee Tarzanagh, Li, Thrampoulidis, Oymak, arXiv 2308.16898",
    statements="theorems.transformers_as_svms",
    without="theorems.transformers_as_svms.without",
    faults="theorems.transformers_as_svms.faults",
    after=("token-selection",),
    prefix="tsvm-",
    explained=(),
)
