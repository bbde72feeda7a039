//! The store over SQL, written once for both databases.
//!
//! A statement is a template: where the two databases differ it has a word in braces, which each
//! [`db::Dialect`] fills in. What a database does in a way of its own (locks, the relay) is a
//! function of its dialect.
//!
//! Row locks do the ordering. A fenced write finds the row by (task, epoch, leased) and locks it in the same
//! statement or transaction. A claim therefore either comes wholly before the write, which is then refused,
//! or waits for it. SQLite has one lock instead: a write is one statement or a `BEGIN IMMEDIATE` transaction.

mod absence;
mod arg;
mod capacity;
mod dashboards;
mod db;
mod doubt;
mod effect_state;
mod effect_words;
mod effects;
mod enqueue;
mod external;
mod failure;
#[cfg(test)]
mod fake_postgres;
mod figures;
mod held;
mod intents;
mod journal;
mod kept;
mod lease;
mod lease_end;
mod memory;
mod people;
mod postgres;
mod reports;
mod restored;
mod retention;
mod rounds;
mod row;
mod sqlite;
mod store;
mod sweep;
mod tasks;
mod totals;
#[cfg(test)]
pub(crate) mod trace;

#[cfg(test)]
pub(crate) use db::Dialect;
pub(crate) use lease::ATTEMPTS;
pub(crate) use postgres::{
    check as check_postgres, inspect as inspect_postgres, open as open_postgres,
};
pub(crate) use sqlite::{check as check_sqlite, inspect as inspect_sqlite, open as open_sqlite};
pub(crate) use store::{CONNECTION_STATES, POOLS, Role};
