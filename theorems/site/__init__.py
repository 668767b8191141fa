"""The documentation site's source: the documents, and pages made of statements, derivations and what is recorded."""
