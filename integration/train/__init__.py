"""``foredraft train``: fit what drafts to its target."""
