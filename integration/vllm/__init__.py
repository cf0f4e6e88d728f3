"""foredraft inside a stock vLLM, as a plugin: our proposers draft, our verifier decides."""
