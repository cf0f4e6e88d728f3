"""The embedded engine: transformers models, continuous batching, a cache in which rollback is setting a length."""
