"""``theorems regime-map``: the work of following the joint path of a schedule, and the document about it."""
