"""ohdearquant/lattice #361: a key that is masked has the logit −10000 instead of −∞.

Where every logit that a row sees lies below that, the masked keys have the weight. A row that sees no key
attends to all.
"""

from __future__ import annotations

from examples.real_faults.attention import Tiled, with_sdpa


class Steps(Tiled):
    """A mask that is a number."""

    hidden = -10000.0


attention = with_sdpa(Steps)
