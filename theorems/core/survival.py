"""Why a statement stays true under a planted fault, where several statements have the same reason."""

from __future__ import annotations

SEARCH_ONLY = "the gradient steers the search for a better point; what is claimed is the risk at what was found"
POINTS_ONLY = "it only places the points at which the claim is tried"
ROOM = "an inequality with room, in which the fault stays"
NO_SQUARE = "its W, where there is one, is not square"
RATE = "a rate of decay up to a factor: on these cases the fault moves the limit by less than it shows"
NO_NEIGHBOUR = "where it was the only neighbour the sharp form breaks down"
CLAIMS_LOST = "sharp forms that need the flag are not claimed; a verification notices that they are lost: inconclusive"
OWN_SOLVER = "the limit is p_relax, which has its own solver; p_mm only places the points at which the claim is tried"
VALUES = "risks enter as bounds of each other, with room or with a common factor; their values are claimed by Lemma 3"
RIGHT_HERE = "on these cases it is so, or nothing is lost: small integers, and no near ties"
SAME_END = "another curve with the same end; that it is no flow of this risk is seen by Theorem 2"
ANY_STEP = "any step up to the bound will do, and there is room beyond it; its value is claimed by Lemma 6"
