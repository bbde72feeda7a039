//! A shell script as the commands in it.
//!
//! It does not build a syntax tree. It finds every place where a shell could begin a command and the
//! words that follow, and where two shells (dash, bash) read a text differently, [`parse`] is called
//! once for each reading. Where it is in doubt it finds more commands rather than fewer; what it cannot
//! follow is an error, and what is an error is not run.

mod expansion;

use std::iter::Peekable;
use std::str::Chars;

use super::word::Word;

/// Longest script, in bytes.
const MAX_SCRIPT: usize = 64 * 1024;
/// Deepest nesting of substitutions.
const MAX_DEPTH: usize = 24;

/// How `&>` is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// The end of a command that runs in the background, then a redirection.
    Posix,
    /// A redirection of both streams.
    Bash,
}

/// The commands of a script, those in substitutions included, in the order in which they stand.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) commands: Vec<Command>,
}

/// One simple command.
#[derive(Debug, Default)]
pub(super) struct Command {
    pub(super) assignments: Vec<(String, Word)>,
    pub(super) words: Vec<Word>,
    /// Where it writes to or reads from.
    pub(super) files: Vec<Word>,
    pub(super) stdin: Stdin,
    /// A `)` or `|` follows: it may be no command but the pattern of a `case`.
    pub(super) may_be_pattern: bool,
    /// The functions in whose bodies it stands.
    pub(super) inside: Vec<String>,
}

/// What a command reads.
#[derive(Debug, Default)]
pub(super) enum Stdin {
    /// Nothing, or what another command writes.
    #[default]
    Unseen,
    /// A file, whose content is not known.
    File,
    /// Text that stands in the script.
    Text(Word),
}

/// Why a script cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unclear(pub(super) &'static str);

/// Finds the commands of a script.
pub(super) fn parse(text: &str, dialect: Dialect, depth: usize) -> Result<Script, Unclear> {
    if text.len() > MAX_SCRIPT {
        return Err(Unclear("it is too long"));
    }
    if text.contains(['\0', '\r']) {
        return Err(Unclear("it has a NUL character or a carriage return"));
    }
    if depth > MAX_DEPTH {
        return Err(Unclear("it is nested too deeply"));
    }
    let mut lexer = Lexer {
        chars: text.chars().peekable(),
        dialect,
        depth,
        found: Vec::new(),
        heredocs: Vec::new(),
    };
    lexer.list(Until::End)?;
    Ok(Script {
        commands: lexer.found,
    })
}

/// Where a word ends.
#[derive(Clone, Copy)]
enum End {
    /// Where a shell ends a word.
    Blank,
    /// At the closing brace of `${…}`, which itself may stand in double quotes.
    Brace { quoted: bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    End,
    Paren,
}

struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    dialect: Dialect,
    depth: usize,
    found: Vec<Command>,
    heredocs: Vec<Heredoc>,
}

/// A here-document whose text has not come yet.
struct Heredoc {
    delimiter: String,
    quoted: bool,
    tabs_stripped: bool,
    /// The command that reads it, by its place among those found or, if that is still open, after them.
    reader: Option<usize>,
}

/// What is open around a command.
#[derive(Default)]
struct Open {
    command: Command,
    parens: usize,
    braces: usize,
    functions: Vec<Function>,
    /// A function's name was read, and its body comes.
    defining: Option<String>,
}

struct Function {
    name: String,
    body: Body,
}

/// Where a function's body ends.
enum Body {
    /// Where so many parentheses are open again.
    Parens(usize),
    /// Where so many braces are open again.
    Braces(usize),
    /// It is not followed.
    Unclear,
}

impl Open {
    fn begin_function(&mut self, body: Body) {
        if let Some(name) = self.defining.take() {
            self.functions.push(Function { name, body });
        }
    }

    fn end_functions(&mut self) {
        let (parens, braces) = (self.parens, self.braces);
        self.functions.retain(|function| match function.body {
            Body::Parens(at) => at < parens,
            Body::Braces(at) => at < braces,
            Body::Unclear => true,
        });
    }
}

/// Words that may stand where a command begins and are none.
const RESERVED: [&str; 14] = [
    "!", "{", "}", "if", "then", "elif", "else", "fi", "do", "done", "while", "until", "esac",
    "coproc",
];

impl<'a> Lexer<'a> {
    fn list(&mut self, until: Until) -> Result<(), Unclear> {
        if self.depth > MAX_DEPTH {
            return Err(Unclear("it is nested too deeply"));
        }
        let mut open = Open::default();
        while let Some(&c) = self.chars.peek() {
            match c {
                ' ' | '\t' => {
                    self.chars.next();
                }
                '\n' => {
                    self.chars.next();
                    self.finish(&mut open);
                    self.read_heredocs()?;
                }
                ';' => {
                    self.chars.next();
                    self.finish(&mut open);
                }
                '|' => {
                    open.command.may_be_pattern = true;
                    self.chars.next();
                    self.finish(&mut open);
                }
                '&' => {
                    self.chars.next();
                    if self.chars.peek() == Some(&'>') && self.dialect == Dialect::Bash {
                        continue;
                    }
                    self.finish(&mut open);
                }
                '#' => self.skip_comment(),
                '(' => self.open_paren(&mut open)?,
                ')' => {
                    open.command.may_be_pattern = true;
                    if until == Until::Paren && open.parens == 0 {
                        self.finish(&mut open);
                        return match self.heredocs.is_empty() {
                            true => Ok(()),
                            false => Err(Unclear("a here-document has no text")),
                        };
                    }
                    self.chars.next();
                    self.finish(&mut open);
                    open.parens = open.parens.saturating_sub(1);
                    open.end_functions();
                }
                '<' | '>' => self.redirection(&mut open)?,
                _ => self.command_word(&mut open, until)?,
            }
        }
        self.finish(&mut open);
        self.read_heredocs()?;
        match until {
            Until::End => Ok(()),
            Until::Paren => Err(Unclear("a parenthesis is not closed")),
        }
    }

    fn open_paren(&mut self, open: &mut Open) -> Result<(), Unclear> {
        self.chars.next();
        let mut ahead = self.chars.clone();
        while ahead.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        if let ([name], Some(&')')) = (open.command.words.as_slice(), ahead.peek()) {
            self.chars = ahead;
            self.chars.next();
            let name = name
                .literal()
                .ok_or(Unclear("a function's name is not plain"))?;
            open.defining = Some(name);
            open.command = Command::default();
            return Ok(());
        }
        self.finish(open);
        open.begin_function(Body::Parens(open.parens));
        open.parens += 1;
        Ok(())
    }

    /// Ends the command that is open.
    fn finish(&mut self, open: &mut Open) {
        let mut command = std::mem::take(&mut open.command);
        let at = self.found.len();
        let mut reads = false;
        for heredoc in &mut self.heredocs {
            reads |= heredoc.reader.is_none();
            heredoc.reader.get_or_insert(at);
        }
        let empty = command.words.is_empty()
            && command.assignments.is_empty()
            && command.files.is_empty()
            && !reads;
        if !empty {
            command.inside = open.functions.iter().map(|f| f.name.clone()).collect();
            self.found.push(command);
        }
    }

    fn command_word(&mut self, open: &mut Open, until: Until) -> Result<(), Unclear> {
        let word = self.word(End::Blank)?;
        let begins = open.command.words.is_empty();
        let literal = word.literal_unquoted();
        if let (true, Some(text)) = (begins, literal.as_deref()) {
            if text == "case" && until == Until::Paren {
                return Err(Unclear("there is a case within a substitution"));
            }
            if text == "function" {
                while self.chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
                let name = self.word(End::Blank)?.literal();
                open.defining = Some(name.ok_or(Unclear("a function's name is not plain"))?);
                return Ok(());
            }
            if RESERVED.contains(&text) {
                reserved(open, text);
                return Ok(());
            }
        }
        open.defining = None;
        if begins && let Some((name, value)) = word.assignment() {
            open.command.assignments.push((name, value));
            return Ok(());
        }
        // `2>file`: the number is no word.
        let number = literal.is_some_and(|text| text.chars().all(|c| c.is_ascii_digit()));
        if number && matches!(self.chars.peek(), Some('<' | '>')) {
            return Ok(());
        }
        open.command.words.push(word);
        Ok(())
    }

    fn redirection(&mut self, open: &mut Open) -> Result<(), Unclear> {
        let reads = self.chars.next() == Some('<');
        if reads && self.chars.next_if_eq(&'<').is_some() {
            if self.chars.next_if_eq(&'<').is_some() {
                self.skip_blanks();
                open.command.stdin = Stdin::Text(self.word(End::Blank)?);
                return Ok(());
            }
            return self.heredoc();
        }
        while self
            .chars
            .next_if(|c| matches!(c, '>' | '|' | '&' | '<'))
            .is_some()
        {}
        self.skip_blanks();
        match self.chars.peek() {
            // `<(command)`: the command is found like any other, and this one reads what it writes.
            Some('(') => {
                self.chars.next();
                self.nested_parens()?;
                // In a word's place, so that it counts as an argument.
                open.command.words.push(Word::unknown());
            }
            None | Some('\n' | ';' | '&' | '|' | ')') => {}
            Some(_) => {
                let file = self.word(End::Blank)?;
                if reads {
                    open.command.stdin = Stdin::File;
                }
                open.command.files.push(file);
            }
        }
        Ok(())
    }

    fn heredoc(&mut self) -> Result<(), Unclear> {
        let tabs_stripped = self.chars.next_if_eq(&'-').is_some();
        self.skip_blanks();
        let word = self.word(End::Blank)?;
        let quoted = word.literal_unquoted().is_none();
        let delimiter = word
            .literal()
            .ok_or(Unclear("the end of a here-document is not plain"))?;
        self.heredocs.push(Heredoc {
            delimiter,
            quoted,
            tabs_stripped,
            reader: None,
        });
        Ok(())
    }

    /// Reads the here-documents that were announced on the line that ended.
    fn read_heredocs(&mut self) -> Result<(), Unclear> {
        for heredoc in std::mem::take(&mut self.heredocs) {
            let mut text = String::new();
            loop {
                let mut line = String::new();
                let mut ended = true;
                for c in self.chars.by_ref() {
                    if c == '\n' {
                        ended = false;
                        break;
                    }
                    line.push(c);
                }
                let compared = match heredoc.tabs_stripped {
                    true => line.trim_start_matches('\t'),
                    false => line.as_str(),
                };
                if compared == heredoc.delimiter {
                    break;
                }
                text.push_str(compared);
                if ended {
                    break;
                }
                text.push('\n');
            }
            let word = match heredoc.quoted {
                true => Word::quoted(text),
                false => self.expanded(&text)?,
            };
            if let Some(command) = heredoc.reader.and_then(|at| self.found.get_mut(at)) {
                command.stdin = Stdin::Text(word);
            }
        }
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while self.chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    }

    fn skip_comment(&mut self) {
        while self.chars.next_if(|c| *c != '\n').is_some() {}
    }

    /// One word.
    fn word(&mut self, end: End) -> Result<Word, Unclear> {
        let mut word = Word::default();
        while let Some(&c) = self.chars.peek() {
            match (end, c) {
                (End::Brace { .. }, '}')
                | (End::Blank, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')') => {
                    return Ok(word);
                }
                // Shells disagree on what such a quote does.
                (End::Brace { quoted: true }, '\'' | '"') => {
                    return Err(Unclear("there are quotes in a quoted ${…}"));
                }
                _ => {}
            }
            self.chars.next();
            match c {
                '\\' => match self.chars.next() {
                    Some('\n') => {}
                    Some(other) => word.push_quoted(other),
                    None => word.push_quoted('\\'),
                },
                '\'' => {
                    word.open_quotes();
                    loop {
                        match self.chars.next() {
                            Some('\'') => break,
                            Some(c) => word.push_quoted(c),
                            None => return Err(Unclear("a quote is not closed")),
                        }
                    }
                }
                '"' => {
                    word.open_quotes();
                    self.double_quoted(&mut word, Some('"'))?;
                }
                '$' => self.dollar(&mut word, false)?,
                '`' => self.backticks(&mut word, false)?,
                other => word.push(other),
            }
        }
        match end {
            End::Brace { .. } => Err(Unclear("a brace is not closed")),
            End::Blank => Ok(word),
        }
    }

    fn double_quoted(&mut self, word: &mut Word, end: Option<char>) -> Result<(), Unclear> {
        loop {
            let Some(c) = self.chars.next() else {
                return match end {
                    Some(_) => Err(Unclear("a quote is not closed")),
                    None => Ok(()),
                };
            };
            match c {
                c if Some(c) == end => return Ok(()),
                '\\' => match self.chars.next() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => word.push_quoted(c),
                    Some(other) => {
                        word.push_quoted('\\');
                        word.push_quoted(other);
                    }
                    None => word.push_quoted('\\'),
                },
                '$' => self.dollar(word, true)?,
                '`' => self.backticks(word, true)?,
                other => word.push_quoted(other),
            }
        }
    }
}

fn reserved(open: &mut Open, text: &str) {
    match text {
        "{" => {
            open.begin_function(Body::Braces(open.braces));
            open.braces += 1;
        }
        "}" => {
            open.braces = open.braces.saturating_sub(1);
            open.end_functions();
        }
        _ => open.begin_function(Body::Unclear),
    }
}
