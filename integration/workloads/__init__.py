"""Prompts to measure with: built-in ones, and the user's own JSONL files."""

from foredraft.integration.workloads.loader import WorkloadPrompt, load_workload, workload_names

__all__ = ["WorkloadPrompt", "load_workload", "workload_names"]
