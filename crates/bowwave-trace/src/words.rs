//! Words of traces and command lines that stand for values.

/// Implements `Display` and `FromStr` for a `named_enum!`. The error for an unknown word is
/// `$unknown`.
macro_rules! words {
    ($type:ident, $(#[$doc:meta])* $unknown:ident, $what:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $unknown;

            fn from_str(word: &str) -> Result<Self, $unknown> {
                Self::ALL.into_iter().find(|known| known.name() == word).ok_or($unknown)
            }
        }

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $unknown;

        impl std::fmt::Display for $unknown {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!("is not ", $what, " (one of {})"), $type::NAMES.join(", "))
            }
        }

        impl std::error::Error for $unknown {}
    };
}

pub(crate) use words;
