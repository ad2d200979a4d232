"""Hypothesis profiles: examples are drawn anew on every run, except under ``HYPOTHESIS_PROFILE=ci``, where a run repeats the last one's."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
