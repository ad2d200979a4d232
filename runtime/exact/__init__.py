"""Exact sampling of a policy-constrained workflow; see docs/exact-sampling.md."""
