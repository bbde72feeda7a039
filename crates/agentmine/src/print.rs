//! Text for a terminal. Text from a model, a repository or a sandbox may contain escape sequences; none of
//! them reaches the terminal.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;

use agentmine_runtime::config::Sources;
use agentmine_runtime::exit::{Exit, Failure};
pub(crate) use agentmine_runtime::terminal::clean;
use anyhow::Result;
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Row, Table};
use serde::Serialize;

/// On one line, at most `max` characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let line = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max {
        return line;
    }
    line.chars()
        .take(max.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// A text of at most `max` characters: where it is longer, its beginning and its end.
pub(crate) fn both_ends(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let kept = max.saturating_sub(3) / 2;
    let head = text.chars().take(kept);
    let tail = text.chars().skip(count - kept);
    head.chain(" … ".chars()).chain(tail).collect()
}

/// Why the first line that is missing from stdout could not be written.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to stdout. A closed pipe (`| head`) is not an error and does not interrupt a run.
pub(crate) fn line(text: impl AsRef<str>) {
    if !crate::pager::write(text.as_ref()) {
        put(io::stdout(), text.as_ref(), &LOST);
    }
}

fn put(mut to: impl io::Write, text: &str, lost: &OnceLock<io::Error>) {
    if let Err(error) = writeln!(to, "{text}") {
        // The first error is the one that explains.
        let _ = lost.set(error);
    }
}

/// Whether nobody sees what is printed: stdout is a closed pipe, or on a full disk.
pub(crate) fn is_lost() -> bool {
    LOST.get().is_some()
}

/// The exit code of a command that has printed everything.
///
/// # Errors
/// If a part of the output is missing, except in a closed pipe, whose reader wanted no more.
pub(crate) fn all_written(exit: Exit) -> Result<Exit> {
    unless_lost(exit, &LOST)
}

/// Prints help, the version, or what is wrong with the arguments. Returns the exit code.
///
/// # Errors
/// As [`all_written`].
pub(crate) fn usage(usage: &clap::Error) -> Result<Exit> {
    let lost = OnceLock::new();
    if let Err(error) = usage.print() {
        let _ = lost.set(error);
    }
    match usage.use_stderr() {
        true => Ok(Exit::Validation),
        false => unless_lost(Exit::Done, &lost),
    }
}

fn unless_lost(exit: Exit, lost: &OnceLock<io::Error>) -> Result<Exit> {
    let error = lost.get();
    let error = error.filter(|it| it.kind() != io::ErrorKind::BrokenPipe);
    match error {
        Some(error) if exit == Exit::Done => Err(Failure::new(
            Exit::Other,
            format!("the output could not be written: {error}"),
        )
        .hint("the command itself was carried out; check stdout before you repeat it")
        .into()),
        Some(_) | None => Ok(exit),
    }
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub(crate) struct Json {
    /// Print JSON (docs/command-line.md)
    #[arg(long)]
    json: bool,
}

impl Json {
    /// Prints the answer as JSON, or as `people` prints it.
    pub(crate) fn print<T: Serialize>(self, answer: &T, people: impl FnOnce(&T)) -> Result<Exit> {
        match self.json {
            true => line(serde_json::to_string_pretty(answer)?),
            false => people(answer),
        }
        Ok(Exit::Done)
    }

    /// Whether the answer is JSON.
    pub(crate) fn is_wanted(self) -> bool {
        self.json
    }
}

/// Prints a line to stderr: everything but the result itself.
pub(crate) fn note(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}

/// Prints a foreign text: unchanged to a file or a pipe, cleaned on a terminal.
pub(crate) fn body(text: &str) {
    use std::io::IsTerminal as _;
    if io::stdout().is_terminal() {
        line(clean(text));
    } else {
        line(text);
    }
}

/// The width of the terminal in columns; `None` if the output is not one.
fn width() -> Option<u16> {
    let size = console::Term::stdout().size_checked();
    size.map(|(_, columns)| columns)
}

/// A table without borders, as wide as the terminal. In a file or a pipe no cell is wrapped or cut.
pub(crate) fn table(header: &[&str]) -> Table {
    table_within(width(), header)
}

fn table_within(width: Option<u16>, header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    match width {
        Some(columns) => {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(columns);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    table
}

/// A text for a table's cell: on one line, and whole.
pub(crate) fn cell(text: &str) -> String {
    one_line(text, usize::MAX)
}

/// A foreign text for a table's cell: on a terminal at most `max` characters, else whole.
pub(crate) fn brief(text: &str, max: usize) -> String {
    match width() {
        Some(_) => one_line(text, max),
        None => cell(text),
    }
}

/// A text for a terminal, wrapped between words below a first line that begins after `indent` columns. In a
/// file or a pipe it is one line.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    wrapped_within(width(), text, indent)
}

/// The same for a terminal of this width; `None`: it is none.
pub(crate) fn wrapped_within(width: Option<u16>, text: &str, indent: usize) -> String {
    let text = cell(text);
    let Some(room) = width.map(|columns| usize::from(columns).saturating_sub(indent).max(8)) else {
        return text;
    };
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.extend(pieces(word, room)),
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// The same for a text of several lines, which stay lines.
pub(crate) fn wrapped_lines(text: &str, indent: usize) -> String {
    match width() {
        None => clean(text),
        columns => {
            let lines = clean(text);
            let lines = lines
                .lines()
                .map(|line| wrapped_within(columns, line, indent));
            let between = format!("\n{}", " ".repeat(indent));
            lines.collect::<Vec<_>>().join(&between)
        }
    }
}

/// A word in pieces of at most `room` characters: a path may be longer than a line.
fn pieces(word: &str, room: usize) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    let pieces = characters.chunks(room.max(1));
    pieces.map(|piece| piece.iter().collect()).collect()
}

/// The table's text, without trailing spaces. On a terminal, columns without any value leave their room to the others;
/// where it is too narrow for a table, each row is a list.
pub(crate) fn trimmed(table: &Table) -> String {
    match width() {
        Some(columns) => fitting(&without_empty(table), columns),
        None => text_of(table),
    }
}

fn fitting(table: &Table, columns: u16) -> String {
    /// Longer words may be broken into pieces.
    const LONG: usize = 12;
    /// The space on both sides of a cell.
    const BESIDE: usize = 2;
    let of = |row: &Row| row.cell_iter().map(Cell::content).collect::<Vec<_>>();
    let visible = table.column_iter().map(|column| !column.is_hidden());
    let header = table.header().map(of).unwrap_or_default();
    let shown: Vec<(usize, String)> = (0..)
        .zip(header)
        .zip(visible)
        .filter_map(|(named, is_visible)| is_visible.then_some(named))
        .collect();
    let longest = |text: &str| {
        let words = text.split_whitespace().map(|word| word.chars().count());
        words.max().unwrap_or(0).min(LONG)
    };
    let needed = |(at, name): &(usize, String)| {
        let cells = table
            .row_iter()
            .filter_map(|row| of(row).get(*at).map(|cell| longest(cell)));
        cells.chain([longest(name)]).max().unwrap_or(0) + BESIDE
    };
    if shown.iter().map(needed).sum::<usize>() <= usize::from(columns) {
        return text_of(table);
    }
    let widest = shown.iter().map(|(_, name)| name.len()).max().unwrap_or(0);
    let record = |row: &Row| {
        let cells = of(row);
        let lines = shown.iter().filter_map(|(at, name)| {
            let value = cells.get(*at).filter(|value| !value.is_empty())?;
            let value = wrapped_within(Some(columns), value, widest + 2);
            Some(format!("{name:<widest$}  {value}"))
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let records: Vec<String> = table.row_iter().map(record).collect();
    records.join("\n\n")
}

/// The table without the columns that no row has a value in.
fn without_empty(table: &Table) -> Table {
    let mut table = table.clone();
    for index in 0..table.column_count() {
        let mut cells = table
            .row_iter()
            .filter_map(|row| row.cell_iter().nth(index));
        if cells.all(|cell| cell.content().is_empty())
            && let Some(column) = table.column_mut(index)
        {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    table
}

fn text_of(table: &Table) -> String {
    table
        .lines()
        .map(|l| l.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// `1.5 GiB`.
pub(crate) fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// A text as one word of a shell, for commands that can be pasted.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%:,=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// How this program was called, for hints that can be pasted.
pub(crate) fn program() -> String {
    std::env::args()
        .next()
        .unwrap_or_else(|| "agentmine".into())
}

/// The same with the configuration that was named, for commands that read what this one wrote.
pub(crate) fn program_with_config() -> String {
    let program = program();
    let mut args = std::env::args().skip(1);
    let mut file = None;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-c" | "--config" => file = args.next(),
            _ => file = arg.strip_prefix("--config=").map(str::to_owned).or(file),
        }
    }
    match file {
        Some(file) => format!("{program} --config {}", word(&file)),
        None => program,
    }
}

/// The same with the configuration that this one read, for commands that read what it wrote. `run` does not read
/// ./config.yaml, and `demo` no file at all; the other commands do.
pub(crate) fn program_reading(used: Option<&Path>) -> String {
    let found = Sources::from_process(None).used_file();
    reading(&program(), used, found.as_deref())
}

/// `found` is what the command would find by itself.
fn reading(program: &str, used: Option<&Path>, found: Option<&Path>) -> String {
    match used {
        _ if used == found => program.to_owned(),
        Some(file) => format!("{program} --config {}", word(&file.display().to_string())),
        // An empty file: every key has its default.
        None => format!("{program} --config /dev/null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing.
    struct Broken(io::ErrorKind);

    impl io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_lost_line_is_an_error_except_in_a_closed_pipe() {
        for (kind, code) in [
            (io::ErrorKind::StorageFull, Some(Exit::Other)),
            (io::ErrorKind::BrokenPipe, None),
        ] {
            let lost = OnceLock::new();
            put(Vec::<u8>::new(), "a", &lost);
            assert!(lost.get().is_none());
            put(Broken(kind), "b", &lost);
            assert_eq!(lost.get().map(io::Error::kind), Some(kind));
            let outcome = unless_lost(Exit::Done, &lost);
            assert_eq!(outcome.err().map(|error| Exit::of(&error)), code);
            let outcome = unless_lost(Exit::NotFound, &lost);
            assert_eq!(outcome.unwrap(), Exit::NotFound);
        }
    }

    #[test]
    fn a_path_with_a_space_is_one_word_of_a_shell() {
        assert_eq!(word("/home/mona/a-b_1.2"), "/home/mona/a-b_1.2");
        assert_eq!(word("/home/my project"), "'/home/my project'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word(""), "''");
    }

    #[test]
    fn a_command_reads_the_configuration_that_was_read_here() {
        let (here, home) = (Path::new("config.yaml"), Path::new("/home/my name/c.yaml"));
        for (used, found, expected) in [
            (None, None, "agentmine"),
            (Some(home), Some(home), "agentmine"),
            (
                Some(home),
                Some(here),
                "agentmine --config '/home/my name/c.yaml'",
            ),
            (None, Some(here), "agentmine --config /dev/null"),
        ] {
            assert_eq!(reading("agentmine", used, found), expected);
        }
    }

    #[test]
    fn a_table_is_as_wide_as_the_terminal_and_whole_in_a_pipe() {
        let rows = |width| {
            let mut table = table_within(width, &["TASK", "TITLE"]);
            table.add_row(vec!["1".to_owned(), cell(&"word\n".repeat(40))]);
            trimmed(&table)
        };
        let narrow = rows(Some(50));
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 50),
            "{narrow}"
        );
        assert_eq!(narrow.matches("word").count(), 40, "{narrow}");
        assert_eq!(rows(None).lines().count(), 2);
        assert_eq!(rows(None).matches("word").count(), 40);
    }

    #[test]
    fn a_column_without_values_leaves_its_room_to_the_others() {
        let mut table = table_within(Some(30), &["TASK", "DETAIL", "TITLE"]);
        table.add_row(vec!["1", "", "Fix the login page"]);
        let text = text_of(&without_empty(&table));
        assert!(!text.contains("DETAIL"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        table.add_row(vec!["2", "paused", "x"]);
        assert!(text_of(&without_empty(&table)).contains("DETAIL"));
    }

    #[test]
    fn a_row_is_a_list_where_a_table_has_no_room() {
        let rows = |columns| {
            let header = ["TASK", "STATUS", "DETAIL", "ITEM", "TITLE", "UPDATED"];
            let mut table = table_within(Some(columns), &header);
            for task in ["1", "2"] {
                let title = "Fix the login page";
                table.add_row(vec![task, "in_progress", "", "acme/app#7", title, "now"]);
            }
            fitting(&without_empty(&table), columns)
        };
        assert!(!rows(60).starts_with("TASK     1"), "{}", rows(60));
        assert_eq!(
            rows(24),
            "TASK     1\n\
             STATUS   in_progress\n\
             ITEM     acme/app#7\n\
             TITLE    Fix the login\n         page\n\
             UPDATED  now\n\n\
             TASK     2\n\
             STATUS   in_progress\n\
             ITEM     acme/app#7\n\
             TITLE    Fix the login\n         page\n\
             UPDATED  now"
        );
    }

    #[test]
    fn a_long_warning_wraps_between_words() {
        let text = "the jail is weaker here: no namespaces";
        assert_eq!(
            wrapped_within(Some(30), text, 4),
            "the jail is weaker here:\n    no namespaces"
        );
        assert_eq!(wrapped_within(None, text, 4), text);
        let path = format!("it is at /{}", "x".repeat(30));
        assert_eq!(
            wrapped_within(Some(24), &path, 4),
            format!("it is at\n    /{}\n    {}", "x".repeat(19), "x".repeat(11))
        );
    }

    #[test]
    fn one_line_is_short() {
        assert_eq!(one_line("a\n  b", 10), "a b");
        assert_eq!(one_line("abcdefgh", 4), "abc…");
    }

    #[test]
    fn long_text_keeps_both_ends() {
        assert_eq!(both_ends("abcdefgh", 8), "abcdefgh");
        assert_eq!(both_ends("abcdéfgh!", 7), "ab … h!");
    }
}
