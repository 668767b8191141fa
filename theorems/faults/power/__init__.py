"""``theorems power``: which statement catches which planted fault, on how many examples, and how small a one."""
