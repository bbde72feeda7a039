//! Makes cargo notice a new migration file: the macro that embeds them only sees those it knew.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/postgres");
    println!("cargo:rerun-if-changed=../../migrations/sqlite");
}
