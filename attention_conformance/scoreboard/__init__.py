"""``theorems scoreboard``: what the attention kernels of other libraries are able to do, as a table."""
