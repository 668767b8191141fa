"""``theorems power``: which statement catches which planted fault, after how many examples, and how small a fault."""
