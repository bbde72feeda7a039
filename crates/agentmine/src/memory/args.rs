//! The arguments of `agentmine memory`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// The project: HOST/OWNER/NAME, or the absolute path of a local repository [default: the one of this folder]
    #[arg(long, value_name = "PROJECT", global = true)]
    pub(crate) project: Option<String>,
    #[command(subcommand)]
    pub(crate) command: MemoryCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// List the records of the project's memory
    List {
        /// Only records with this status: draft, active or archived
        #[arg(long)]
        status: Option<String>,
        /// Only records of this category
        #[arg(long)]
        category: Option<String>,
        /// Only records with this tag
        #[arg(long)]
        tag: Option<String>,
        /// Maximum number of records; 0 lists all
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Add a record
    Add {
        /// The record's id: a-z, 0-9 and -
        id: String,
        /// What it is about, e.g. tooling
        #[arg(long)]
        category: String,
        /// The decision on one line
        #[arg(long)]
        title: String,
        #[command(flatten)]
        fields: FieldArgs,
        /// Who records it: human, or session for a proposal, which is a draft [default: human]
        #[arg(long)]
        source: Option<String>,
        /// Print the record as a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show one record
    Show {
        /// The record's id
        id: String,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Change a record
    Update {
        /// The record's id
        id: String,
        /// What it is about, e.g. tooling
        #[arg(long)]
        category: Option<String>,
        /// The decision on one line
        #[arg(long)]
        title: Option<String>,
        #[command(flatten)]
        fields: FieldArgs,
        /// Remove all tags
        #[arg(long, conflicts_with = "tag")]
        no_tags: bool,
        /// Refuse the change if the record no longer has this version
        #[arg(long, value_name = "N")]
        version: Option<i64>,
        /// Print the record as a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show exactly what an agent receives, and why
    Preview {
        /// Limit in estimated tokens [default: that of the configuration]
        #[arg(long, value_name = "N")]
        max_tokens: Option<u64>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write each record to a file in .agentmine/memory of the project
    Export(TransferArgs),
    /// Read the files in .agentmine/memory of the project into the memory
    Import(TransferArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    /// Also overwrite where both sides were changed
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FieldArgs {
    /// Used instead of the content if that is too long
    #[arg(long)]
    pub(crate) summary: Option<String>,
    /// The text, in Markdown
    #[arg(long, conflicts_with = "file")]
    pub(crate) content: Option<String>,
    /// A file with the text; - is the standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Whether agents receive it: draft, active or archived
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// A tag; can be repeated, and replaces all earlier tags
    #[arg(long)]
    pub(crate) tag: Vec<String>,
    /// How certain it is: low, medium or high
    #[arg(long)]
    pub(crate) confidence: Option<String>,
    /// A date or time (UTC) from which on agents do not receive it; `never` removes it
    #[arg(long, value_name = "DATE")]
    pub(crate) expires: Option<String>,
}
