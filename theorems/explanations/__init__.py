"""Explanations: which tokens attention selects on given data, why, and which statements apply.

An explanation comes as text, HTML, JSON and a drawing.
"""
