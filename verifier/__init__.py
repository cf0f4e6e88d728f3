"""What decides: target distributions and rejection sampling. Tensors in, tensors out; no engine, no I/O."""

from foredraft.verifier.draft import PADDING, Draft, DraftProbs
from foredraft.verifier.sampling import SamplingBatch, TokenControls

__all__ = ["PADDING", "Draft", "DraftProbs", "SamplingBatch", "TokenControls"]
