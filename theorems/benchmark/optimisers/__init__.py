"""The rules that ``theorems bench`` compares: one file per rule, with its update, its source and its proven limit."""
