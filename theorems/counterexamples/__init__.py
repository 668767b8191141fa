"""The hunt for counterexamples: search, shrink, record, replay, tabulate."""
