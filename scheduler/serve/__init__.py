"""Serving on Ray: replicas of one or several variants behind one OpenAI-compatible address.

Importing this package needs no Ray; ``build_application`` does.
"""

from foredraft.scheduler.serve.application import build_application
from foredraft.scheduler.serve.options import ServeOptions, StandingPolicy
from foredraft.scheduler.serve.variant import Autoscaling, Variant

__all__ = ["Autoscaling", "ServeOptions", "StandingPolicy", "Variant", "build_application"]
