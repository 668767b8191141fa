"""The capabilities of an attention kernel in one table, and the claims that are made about a call.

`capabilities` is the table. Each capability is a statement ``kernel-…``; all of them share the same calls. A call is
built from a plan of the space of options (`calls.call_space`), and `call_claims` makes every claim about it. If a claim
fails, `call_shrinker` searches for the smallest call on which it still fails; the capabilities whose options remain in
that call are falsified.
"""
