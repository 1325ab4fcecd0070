"""The models that `bowwave explain` is compared with, by the name of the policy."""

import model_legacy
import model_ondemand

MODELS = {policy: module.Model for module in (model_ondemand, model_legacy) for policy in module.POLICIES}
POLICIES = tuple(MODELS)


def model(policy, ra_pages, file_pages):
    """A fresh model of a policy."""
    return MODELS[policy](policy, ra_pages, file_pages)
