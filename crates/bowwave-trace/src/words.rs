//! Enums whose values have a word each, for traces, command lines and messages.

/// Defines an enum with its values in `ALL` and a function that returns the text of each.
macro_rules! texts {
    (
        $(#[$meta:meta])*
        pub enum $type:ident, $(#[$text_meta:meta])* $text:ident {
            $($(#[$doc:meta])* $variant:ident = $value:literal,)*
        }
    ) => {
        $(#[$meta])*
        pub enum $type { $($(#[$doc])* $variant,)* }

        impl $type {
            /// All values, in the order in which descriptions and help list them.
            pub const ALL: [Self; [$($value),*].len()] = [$(Self::$variant),*];

            $(#[$text_meta])*
            pub const fn $text(self) -> &'static str {
                match self { $(Self::$variant => $value,)* }
            }
        }
    };
}

/// Implements `Display` and `FromStr` for an enum of [`texts!`]. The error for an unknown word is
/// `$unknown`.
macro_rules! words {
    ($type:ident, $text:ident, $(#[$doc:meta])* $unknown:ident, $what:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.$text())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $unknown;

            fn from_str(word: &str) -> Result<Self, $unknown> {
                Self::ALL.into_iter().find(|known| known.$text() == word).ok_or($unknown)
            }
        }

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $unknown;

        impl std::fmt::Display for $unknown {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!("is not ", $what, " (one of {})"), $type::ALL.map($type::$text).join(", "))
            }
        }

        impl std::error::Error for $unknown {}
    };
}

pub(crate) use {texts, words};
