"""Calls of attention kernels: how they are drawn and written to files, and what a correct kernel returns.

A call is built from a plan, which gives each option a level (`call_space`, `call_builder`). `attention_rows` and
`further_rows` compute a call's results from the definition of attention, with the rounding that a kernel is allowed.
"""
