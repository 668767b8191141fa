"""``theorems scoreboard``: the capabilities of other libraries' attention kernels, as a table."""
