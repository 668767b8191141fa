"""Data of the statements of *Transformers as Support Vector Machines* alone."""
