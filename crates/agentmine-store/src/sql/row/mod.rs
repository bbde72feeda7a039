//! Rows, and how they become domain types. A column is named once, here.

/// Declares a row, and the columns that fill it. sqlx has a derive for this, but its macro crate compiles
/// SQLite and most of sqlx a second time.
macro_rules! row {
    ($(#[$doc:meta])* $name:ident { $first:ident: $first_type:ty $(, $field:ident: $type:ty)* $(,)? }) => {
        $(#[$doc])*
        pub(in crate::sql) struct $name { pub(in crate::sql) $first: $first_type, $(pub(in crate::sql) $field: $type,)* }

        impl<'r, R> sqlx::FromRow<'r, R> for $name
        where
            R: sqlx::Row,
            &'static str: sqlx::ColumnIndex<R>,
            $first_type: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
            $($type: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,)*
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                Ok(Self {
                    $first: row.try_get(stringify!($first))?,
                    $($field: row.try_get(stringify!($field))?,)*
                })
            }
        }

        impl crate::sql::db::AnyRow for $name {
            const COLUMNS: &'static str =
                concat!(stringify!($first) $(, ", ", stringify!($field))*);
        }
    };
}

mod column;
mod recorded;
mod session;
mod sum;
mod task;

pub(super) use column::{Id, lease_request, priority, priority_number, scope};
pub(super) use recorded::*;
pub(super) use session::*;
pub(super) use sum::*;
pub(super) use task::*;
