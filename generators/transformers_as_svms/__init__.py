"""Data that only the statements of *Transformers as Support Vector Machines* use."""
