"""The rules that ``theorems bench`` compares, one file each: its update, its source and its proven limit."""
