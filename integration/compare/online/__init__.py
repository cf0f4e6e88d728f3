"""Compare running OpenAI-compatible servers under the same load: ours, plain vLLM, or any other."""
