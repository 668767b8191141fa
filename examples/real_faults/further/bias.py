"""A right kernel with a bias that is added to the logits and differentiated, in PyTorch's interface.

theorems verify --attention examples.real_faults.further.bias:attention
"""

from __future__ import annotations

from examples.real_faults.further.rows import Rows, with_bias


class Steps(Rows):
    """The rows as they are."""


attention = with_bias(Steps)
