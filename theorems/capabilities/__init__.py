"""What an attention kernel may be able to do, a file each: statements ``kernel-…`` about calls of it.

| capability | what is claimed |
|---|---|
| `output`, `gradients` | softmax attention of every row, and dQ, dK, dV |
| `scale`, `default_scale`, `softcap`, `log_sum_exp` | the logits, and log Σ e^logit |
| `causal`, `causal_rectangle`, `boolean_mask`, `additive_mask`, `window` | which keys a row sees |
| `hidden_keys`, `empty_rows` | what is not seen does not matter; rows that see nothing |
| `grouped_heads` | heads that share keys and values |
| `memory`, `repeated_calls` | how tensors lie in memory; that nothing is written, nothing is random |
| `exact_weights` | calls on which no rounding hides anything, in any precision |
"""
