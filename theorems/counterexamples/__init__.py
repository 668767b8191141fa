"""The hunt for counterexamples: search, make small, record, replay, tabulate."""
