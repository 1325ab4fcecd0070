//! Enumerations with names and a counter for each variant.

/// Defines an enumeration whose variants have names for output, and lists them.
macro_rules! kinds {
    ($(#[$of_enum:meta])* pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$of_variant])* $variant,)* }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name for output.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

pub(super) use kinds;
