"""The paper's figures, redrawn from the exact numerics: what ``theorems figures`` draws."""
