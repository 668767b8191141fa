"""``theorems scoreboard``: a table that says which capabilities the attention kernels of other libraries have."""
