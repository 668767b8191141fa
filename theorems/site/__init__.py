"""Source of the documentation site: the documents, and pages made of statements, derivations and records."""
