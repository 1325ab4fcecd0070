//! Published rules of `range` for clusters of mapped faults.

use bowwave_core::{ClusterRules, Clusters};

/// Lustre's patch of 2021 as published, without the fixes of [`Clusters::Fixed`]: a window begins
/// one page late, and a cluster at page 0 counts as none.
pub const CLUSTERS_LITERAL: Clusters =
    Clusters::Other(&ClusterRules { skipped_pages: 1, page_0_is_none: true, ..ClusterRules::FIXED });

/// Lustre before that patch: no windows around faults, and the window grows at every fourth
/// sequential mapped fault.
pub const CLUSTERS_BEFORE: Clusters =
    Clusters::Other(&ClusterRules { ranges: false, growth_faults: Some(4), ..ClusterRules::FIXED });

/// Every choice for [`RangeConfig::clusters`](bowwave_core::RangeConfig::clusters), by the name
/// that settings use.
pub const CLUSTERS: [(&str, Clusters); 5] = [
    ("suited", Clusters::Suited),
    ("fixed", Clusters::Fixed),
    ("learned", Clusters::Learned),
    ("literal", CLUSTERS_LITERAL),
    ("before", CLUSTERS_BEFORE),
];
