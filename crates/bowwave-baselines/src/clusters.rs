//! What `range` did about clusters of mapped faults before bowwave's corrections.

use bowwave_core::{ClusterRules, Clusters};

/// Document 003 to the letter, where [`Clusters::Fixed`] corrects it: a window begins one page after the
/// page it is placed at, and the index of page 0 stands for "no cluster so far".
pub const CLUSTERS_LITERAL: Clusters =
    Clusters::Other(&ClusterRules { skipped_pages: 1, page_0_is_none: true, ..ClusterRules::FIXED });

/// Lustre before document 003: no windows around faults, and the window grows with each 4 mapped faults
/// in order.
pub const CLUSTERS_BEFORE: Clusters =
    Clusters::Other(&ClusterRules { ranges: false, growth_faults: Some(4), ..ClusterRules::FIXED });

/// Every choice for [`RangeConfig::clusters`](bowwave_core::RangeConfig::clusters), by the name that
/// settings use.
pub const CLUSTERS: [(&str, Clusters); 5] = [
    ("suited", Clusters::Suited),
    ("mended", Clusters::Fixed),
    ("learned", Clusters::Learned),
    ("literal", CLUSTERS_LITERAL),
    ("before", CLUSTERS_BEFORE),
];
