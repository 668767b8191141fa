"""What a statement is: claims, verdicts, tolerances, the implementation under test, and one check of one case."""
