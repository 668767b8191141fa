"""Factored descents and flows, and nuclear-norm paths, with the premises of the statements about them."""
