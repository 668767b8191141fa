"""The rules that ``theorems bench`` compares, one file each: the update, its source, and the limit that is proven."""
