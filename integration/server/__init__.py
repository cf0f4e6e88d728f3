"""An OpenAI-compatible server over any ``Engine``, with or without Ray."""
