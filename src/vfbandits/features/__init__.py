"""A participant's own features: where they are kept, and how they are scaled."""

from vfbandits.features.base import FeatureStore, Key, Lookup
from vfbandits.features.open import Features, open_features
from vfbandits.features.scaling import Scaling
from vfbandits.settings.features import FeatureSettings

__all__ = [
    "FeatureSettings",
    "FeatureStore",
    "Features",
    "Key",
    "Lookup",
    "Scaling",
    "open_features",
]
