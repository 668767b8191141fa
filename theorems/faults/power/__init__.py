"""``theorems power``: which statement catches which planted fault, after how many examples and at which size."""
