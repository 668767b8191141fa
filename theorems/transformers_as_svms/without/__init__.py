"""Statements of *Transformers as SVMs*, each with one of its assumptions left out."""
