"""Drafting with models inside vLLM: over its paged cache, with its own layers and attention."""
