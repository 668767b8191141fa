"""pytorch/pytorch PR #189784: the gradient of the log-sum-exp is folded into what is subtracted from the scores.

There that is right; here it has the wrong sign, as it is easily given where the term is folded in. Right where the
loss does not depend on the log-sum-exp.
"""

from __future__ import annotations

from torch import Tensor

from examples.real_faults.further.rows import Rows, with_flash


class Steps(Rows):
    """u·o + u_l in place of u·o − u_l."""

    def delta(self, upstream: Tensor, out: Tensor, dlse: Tensor) -> Tensor:
        return (upstream * out).sum(dim=-1) + dlse


attention = with_flash(Steps)
