"""The hunt for counterexamples to statements without an assumption: search, shrink, record, replay, tabulate."""
