"""The capabilities of an attention kernel in one table, and the claims that are made about a call.

`capabilities` is the table. Each capability is a statement ``kernel-…``; all of them share the same calls. A call is
built from a plan of the space of options (`calls.call_space`), `call_claims` makes every claim about it, and
`call_shrinker` looks for the smallest call that still fails. The capabilities whose options remain in this call are
falsified.
"""
