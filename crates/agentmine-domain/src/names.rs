//! Enums whose variants each have one stable name in rows, messages and logs.

/// An unknown name in a row or message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown {what} {seen:?}")]
pub struct UnknownName {
    what: &'static str,
    seen: String,
}

impl UnknownName {
    pub(crate) fn new(what: &'static str, seen: &str) -> Self {
        Self {
            what,
            seen: seen.to_owned(),
        }
    }
}

/// Declares an enum with one stable snake-case name per variant, used in rows, messages and logs.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// All variants, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable name in rows, messages and logs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownName;

            fn from_str(s: &str) -> Result<Self, UnknownName> {
                match s {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(UnknownName::new($what, s)),
                }
            }
        }
    };
}
pub(crate) use named;
