"""Source of the documentation site: the documents, and pages generated from statements, derivations and records."""
