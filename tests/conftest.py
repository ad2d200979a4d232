"""What test files share: Hypothesis profiles, and the weights of the default model.

Hypothesis draws its examples anew on every run, except under ``HYPOTHESIS_PROFILE=ci``, where a run repeats the last one's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from stcc.runtime.models import LoadedModel

settings.register_profile("ci", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def weights() -> LoadedModel:
    """SmolLM2, loaded once a run; the tests that need it are skipped where it cannot be fetched."""
    from stcc.runtime.models import ModelUnavailableError, load_model

    try:
        return load_model("smollm2")
    except ModelUnavailableError as error:
        pytest.skip(f"the weights cannot be fetched: {error}")
