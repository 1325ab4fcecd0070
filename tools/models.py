"""The models that `bowwave explain` is compared with, by the name of the policy."""

import model_legacy
import model_ondemand
import model_range

MODELS = {policy: module.Model
          for module in (model_ondemand, model_legacy, model_range) for policy in module.POLICIES}
POLICIES = tuple(MODELS)
# Those that know mapped faults.
MAPPED = model_range.POLICIES


def model(policy, ra_pages, file_pages):
    """A fresh model of a policy."""
    return MODELS[policy](policy, ra_pages, file_pages)
