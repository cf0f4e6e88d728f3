"""The embedded engine: transformers models, continuous batching, rollback by setting a length."""
