"""What decides: target distributions and rejection sampling. Tensors in, tensors out; no engine, no I/O."""

from foredraft.verifier.choice import categorical, greedy_tokens
from foredraft.verifier.draft import PADDING, Draft, DraftProbs
from foredraft.verifier.drawn import Rule
from foredraft.verifier.logprobs import TokenLogprobs, token_logprobs
from foredraft.verifier.random import Purpose, request_key, uniforms
from foredraft.verifier.rows import MIN_TEMPERATURE, RowSampling
from foredraft.verifier.sampling import SamplingBatch, TokenControls
from foredraft.verifier.truncation import target_probs
from foredraft.verifier.verify import Verdict, verify

__all__ = [
    "MIN_TEMPERATURE",
    "PADDING",
    "Draft",
    "DraftProbs",
    "Purpose",
    "RowSampling",
    "Rule",
    "SamplingBatch",
    "TokenControls",
    "TokenLogprobs",
    "Verdict",
    "categorical",
    "greedy_tokens",
    "request_key",
    "target_probs",
    "token_logprobs",
    "uniforms",
    "verify",
]
