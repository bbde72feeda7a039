//! A shell script as the commands in it.
//!
//! `/bin/sh` may be dash or bash, and the parser knows bash. Where dash reads a text differently and
//! runs something else, both readings are followed, or the text is refused. Where it is in doubt, this
//! module finds more commands rather than fewer.

use rable::{Node, NodeKind};

use crate::nesting;
use crate::word::{Part, Word};

/// Bytes that may be parsed to find the ends of substitutions in here-documents and `${…}`.
const MAX_REPEATED: usize = 1024 * 1024;

/// One simple command.
#[derive(Debug, Default)]
pub(crate) struct Command {
    pub(crate) assignments: Vec<(String, Word)>,
    pub(crate) words: Vec<Word>,
    /// The files that it writes to or reads from.
    pub(crate) files: Vec<Word>,
    pub(crate) stdin: Stdin,
    /// The functions whose bodies contain it.
    pub(crate) inside: Vec<String>,
}

/// What a command reads.
#[derive(Debug, Default)]
pub(crate) enum Stdin {
    /// Nothing, or what another command writes.
    #[default]
    Unseen,
    /// A file, whose content is not known.
    File,
    /// Text in the script.
    Text(Word),
}

/// Why a script cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unclear(pub(crate) &'static str);

/// The commands of a script, those in substitutions included.
pub(crate) fn commands(text: &str) -> Result<Vec<Command>, Unclear> {
    let mut found = read(text)?;
    if text.contains("&>") || text.contains("[[") {
        // In dash, `&>` ends a command in the background and redirects the next one, and `[[` is a
        // program, so that `&&` and `||` end its command. Where that is no script, dash runs nothing.
        let dash = text.replace("&>", "& >").replace("[[", "[ [");
        found.extend(read(&dash).unwrap_or_default());
    }
    if text.contains("\\\n") {
        // Shells join the lines first, which can make one operator of two.
        found.extend(read(&text.replace("\\\n", "")).unwrap_or_default());
    }
    Ok(found)
}

/// Whether a text is a script at all.
pub(crate) fn is_script(text: &str) -> bool {
    parse(text).is_ok()
}

fn read(text: &str) -> Result<Vec<Command>, Unclear> {
    let mut reader = Reader::default();
    reader.nodes(&parse(text)?)?;
    Ok(reader.found)
}

fn parse(text: &str) -> Result<Vec<Node>, Unclear> {
    nesting::check(text)?;
    rable::parse(text, false).map_err(|_| Unclear("it is not a complete shell script"))
}

#[derive(Default)]
struct Reader {
    found: Vec<Command>,
    functions: Vec<String>,
    /// How many substitutions are open around a node.
    substitutions: usize,
    /// The keyword `time` precedes the next command. In dash it is a program with options.
    timed: bool,
    repeated: usize,
}

type Done = Result<(), Unclear>;

impl Reader {
    fn nodes<'a>(&mut self, nodes: impl IntoIterator<Item = &'a Node>) -> Done {
        nodes.into_iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Done {
        let (inner, redirects): (Vec<&Node>, &[Node]) = match &node.kind {
            NodeKind::Command {
                assignments,
                words,
                redirects,
            } => {
                return self.simple(assignments, words, redirects);
            }
            NodeKind::Function { name, body } => {
                if name.contains(['$', '`', '\'', '"', '\\']) {
                    return Err(Unclear("a function's name is not plain"));
                }
                self.functions.push(name.clone());
                let done = self.node(body);
                self.functions.pop();
                return done;
            }
            NodeKind::Pipeline { commands, .. } => (commands.iter().collect(), &[]),
            NodeKind::List { items } => (items.iter().map(|item| &item.command).collect(), &[]),
            NodeKind::If {
                condition,
                then_body,
                else_body,
                redirects,
            } => {
                let bodies = [condition.as_ref(), then_body].into_iter();
                (bodies.chain(else_body.as_deref()).collect(), redirects)
            }
            NodeKind::While {
                condition,
                body,
                redirects,
            }
            | NodeKind::Until {
                condition,
                body,
                redirects,
            } => (vec![condition, body], redirects),
            NodeKind::For {
                var,
                words,
                body,
                redirects,
            }
            | NodeKind::Select {
                var,
                words,
                body,
                redirects,
            } => {
                self.assigned(var);
                let words = words.iter().flatten();
                (words.chain([body.as_ref()]).collect(), redirects)
            }
            NodeKind::ForArith {
                init,
                cond,
                incr,
                body,
                redirects,
            } => {
                for text in [init, cond, incr] {
                    self.expanded(text)?;
                }
                (vec![body], redirects)
            }
            NodeKind::Case {
                word,
                patterns,
                redirects,
            } => {
                let items = patterns
                    .iter()
                    .flat_map(|item| item.patterns.iter().chain(&item.body));
                (
                    [word.as_ref()].into_iter().chain(items).collect(),
                    redirects,
                )
            }
            NodeKind::Subshell { body, redirects }
            | NodeKind::BraceGroup { body, redirects }
            | NodeKind::ConditionalExpr { body, redirects } => (vec![body], redirects),
            NodeKind::Coproc { command: inner, .. } | NodeKind::Negation { pipeline: inner } => {
                (vec![inner], &[])
            }
            NodeKind::Time { pipeline, .. } => {
                self.timed = true;
                (vec![pipeline], &[])
            }
            NodeKind::ArithmeticCommand {
                redirects,
                raw_content,
                ..
            } => {
                self.expanded(raw_content)?;
                // dash reads two subshells.
                self.nodes(&parse(raw_content).unwrap_or_default())?;
                (Vec::new(), redirects)
            }
            NodeKind::CondAnd { left, right }
            | NodeKind::CondOr { left, right }
            | NodeKind::BinaryTest { left, right, .. } => (vec![left, right], &[]),
            NodeKind::UnaryTest { operand: inner, .. }
            | NodeKind::CondNot { operand: inner }
            | NodeKind::CondParen { inner } => (vec![inner], &[]),
            NodeKind::CondTerm { value, .. } => return self.expanded(value).map(|_| ()),
            NodeKind::Word { .. } => return self.word(node).map(|_| ()),
            _ => return Ok(()),
        };
        self.nodes(inner)?;
        self.simple(&[], &[], redirects)
    }

    fn push(&mut self, mut command: Command) {
        command.inside.clone_from(&self.functions);
        self.found.push(command);
    }

    /// A variable gets a value that is not known.
    fn assigned(&mut self, name: &str) {
        self.push(Command {
            assignments: vec![(name.to_owned(), Word::unknown())],
            ..Command::default()
        });
    }

    fn simple(&mut self, assignments: &[Node], words: &[Node], redirects: &[Node]) -> Done {
        let mut command = Command::default();
        if std::mem::take(&mut self.timed) {
            command.words.push(Word::quoted("time".to_owned()));
        }
        for node in assignments {
            let word = self.word(node)?;
            command.assignments.extend(word.assignment());
        }
        for node in words {
            command.words.push(self.word(node)?);
        }
        for node in redirects {
            self.redirect(node, &mut command)?;
        }
        if !(assignments.is_empty() && words.is_empty() && redirects.is_empty()) {
            self.push(command);
        }
        Ok(())
    }

    fn redirect(&mut self, node: &Node, command: &mut Command) -> Done {
        match &node.kind {
            NodeKind::Redirect { op, target, .. } => {
                let file = self.word(target)?;
                match op.as_str() {
                    "<<<" => {
                        command.stdin = Stdin::Text(file);
                        return Ok(());
                    }
                    // A file, but not what another command writes.
                    "<" | "<>" | "<&" if file.is_text() => command.stdin = Stdin::File,
                    "<" | "<>" | "<&" => command.stdin = Stdin::Unseen,
                    _ => {}
                }
                command.files.push(file);
            }
            NodeKind::HereDoc {
                content, quoted, ..
            } => {
                if content.is_empty() && self.substitutions > 0 {
                    // Shells disagree about where it is.
                    return Err(Unclear("a here-document has no text"));
                }
                command.stdin = Stdin::Text(match quoted {
                    true => Word::quoted(content.clone()),
                    false => self.expanded(content)?,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn word(&mut self, node: &Node) -> Result<Word, Unclear> {
        let mut word = Word::default();
        let NodeKind::Word { value, parts, .. } = &node.kind else {
            return Ok(Word::unknown());
        };
        self.arithmetic(value)?;
        if value.contains('`') && value.contains('\\') {
            self.backticks(value)?;
        }
        let mut double = false;
        for part in parts {
            self.part(&part.kind, &mut word, &mut double)?;
        }
        Ok(word)
    }

    /// Text with its quotes. The parser leaves substitutions in it that are nested more than twice.
    fn raw(&mut self, text: &str, word: &mut Word, double: &mut bool) -> Done {
        let mut rest = text;
        loop {
            rest = &rest[word.push_raw(rest, double)?..];
            if rest.is_empty() {
                return Ok(());
            }
            let (end, _) = self
                .shortest(rest, ')')
                .ok_or(Unclear("a substitution cannot be followed"))?;
            self.substitutions += 1;
            let done = parse(&rest[2..end - 1]).and_then(|nodes| self.nodes(&nodes));
            self.substitutions -= 1;
            done?;
            word.push_part(Part::Unknown);
            rest = &rest[end..];
        }
    }

    /// Finds what a word's arithmetic runs, which the parser does not name. `$((…))` that is none is a
    /// substitution that begins with a subshell, and the parser does not always see that.
    fn arithmetic(&mut self, value: &str) -> Done {
        for (at, _) in value.match_indices("$((") {
            let rest = &value[at + 3..];
            let (inner, closed) = match rest.split_once("))") {
                Some((inner, _)) => (inner, true),
                None => (rest, false),
            };
            if closed && is_calculation(inner) {
                continue;
            }
            match only_word(&value.replace("$((", "$( (")) {
                Some(node) => return self.word(&node).map(|_| ()),
                None if closed && !inner.contains('\n') => self.expanded(inner)?,
                None => return Err(Unclear("there is arithmetic that cannot be followed")),
            };
        }
        for (at, _) in value.match_indices("$[") {
            let inner = &value[at + 2..];
            self.expanded(inner.split(']').next().unwrap_or(inner))?;
        }
        Ok(())
    }

    fn part(&mut self, part: &NodeKind, word: &mut Word, double: &mut bool) -> Done {
        match part {
            NodeKind::WordLiteral { value } => return self.raw(value, word, double),
            NodeKind::ParamExpansion { param, op, arg } => {
                if matches!(op.as_deref(), Some("=" | ":=")) {
                    self.assigned(param);
                }
                self.parameter(param, arg.as_deref(), *double)?;
                word.push_parameter(param, op.is_none() && arg.is_none(), *double);
                return Ok(());
            }
            NodeKind::ParamIndirect { param, arg, .. } => {
                self.parameter(param, arg.as_deref(), *double)?;
            }
            NodeKind::CommandSubstitution { command, .. }
            | NodeKind::ProcessSubstitution { command, .. } => {
                self.substitutions += 1;
                let done = self.node(command);
                self.substitutions -= 1;
                done?;
            }
            // dash and bash end such a quote at different places.
            NodeKind::AnsiCQuote { content, .. } if content.contains("\\'") => {
                return Err(Unclear("a $'…' has an escaped quote"));
            }
            NodeKind::LocaleString { inner, .. } => {
                self.expanded(inner)?;
            }
            NodeKind::BraceExpansion { content } => {
                self.expanded(content)?;
                word.push_unquoted(content);
                return Ok(());
            }
            _ => {}
        }
        word.push_part(Part::Unknown);
        Ok(())
    }

    fn parameter(&mut self, name: &str, arg: Option<&str>, quoted: bool) -> Done {
        let arg = arg.unwrap_or_default();
        if quoted && [name, arg].iter().any(|text| text.contains(['\'', '"'])) {
            // Shells disagree on what such a quote does.
            return Err(Unclear("there are quotes in a quoted ${…}"));
        }
        self.expanded(name)?;
        self.expanded(arg).map(|_| ())
    }

    /// Text in which only `$`, backticks and backslashes mean something.
    fn expanded(&mut self, text: &str) -> Result<Word, Unclear> {
        let mut word = Word::quoted(String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '$', '`']) {
            let (plain, special) = rest.split_at(at);
            word.push_quoted(plain);
            let read = match special.strip_prefix('\\') {
                Some(after) => {
                    let escaped = after.chars().next().map_or(0, char::len_utf8);
                    word.push_raw(&special[..1 + escaped], &mut true)?;
                    1 + escaped
                }
                None => self.expansion(special, &mut word)?,
            };
            rest = &special[read..];
        }
        word.push_quoted(rest);
        Ok(word)
    }

    /// Reads the expansion with which a text begins. How many bytes it has.
    fn expansion(&mut self, text: &str, word: &mut Word) -> Result<usize, Unclear> {
        let closer = match text.get(..2) {
            _ if text.starts_with('`') => '`',
            Some("$(") => ')',
            Some("${") => '}',
            _ => {
                let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = text[1..].find(|c| !name(c)).unwrap_or(text.len() - 1);
                word.push_parameter(&text[1..=end], true, true);
                return Ok(1 + end);
            }
        };
        let (read, node) = self
            .shortest(text, closer)
            .ok_or(Unclear("a substitution is not closed"))?;
        self.word(&node)?;
        word.push_part(Part::Unknown);
        Ok(read)
    }

    /// The shortest beginning of a text that is a word and ends with `closer`, since a closer may be
    /// quoted. How many bytes it has.
    fn shortest(&mut self, text: &str, closer: char) -> Option<(usize, Node)> {
        text[1..].match_indices(closer).find_map(|(at, _)| {
            let end = at + 2;
            self.repeated += end;
            let known = self.repeated <= MAX_REPEATED;
            Some((end, known.then(|| only_word(&text[..end])).flatten()?))
        })
    }

    /// Follows backticks with escapes in them as shells do: the escapes go, and the rest is a script. The
    /// parser leaves them in.
    fn backticks(&mut self, value: &str) -> Done {
        const ESCAPES: Unclear = Unclear("there are escaped quotes in backticks");
        let (mut script, mut double, mut at) = (None::<String>, false, 0);
        while let Some(c) = value.get(at..).and_then(|rest| rest.chars().next()) {
            let rest = &value[at..];
            at += c.len_utf8();
            match (&mut script, c) {
                (Some(text), '\\') => {
                    let escaped = rest[1..].chars().next();
                    match escaped {
                        // Whether the backslash goes here depends on what is around.
                        Some('"') if double => return Err(ESCAPES),
                        Some('`' | '\\' | '$') => {}
                        _ => text.push('\\'),
                    }
                    text.extend(escaped);
                    at += escaped.map_or(0, char::len_utf8);
                }
                (Some(text), '`') => {
                    self.nodes(&parse(text)?)?;
                    script = None;
                }
                (Some(text), c) => text.push(c),
                (None, '`') => script = Some(String::new()),
                (None, '\\') => at += rest[1..].chars().next().map_or(0, char::len_utf8),
                // Its words are looked at by themselves.
                (None, '$') if rest.starts_with("$(") => {
                    at += self.shortest(rest, ')').ok_or(ESCAPES)?.0 - 1;
                }
                (None, '\'') if !double => at += 1 + rest[1..].find('\'').ok_or(ESCAPES)?,
                (None, '"') => double = !double,
                (None, _) => {}
            }
        }
        Ok(())
    }
}

/// The word that a text is, if it is one.
fn only_word(text: &str) -> Option<Node> {
    let mut nodes = parse(text).ok()?;
    let node = nodes.pop().filter(|_| nodes.is_empty())?;
    match node.kind {
        NodeKind::Command {
            mut words,
            assignments,
            redirects,
        } if assignments.is_empty() && redirects.is_empty() && words.len() == 1 => words.pop(),
        _ => None,
    }
}

/// Whether a text has only numbers, names and operators.
fn is_calculation(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || " _+-*/%<>=!&|^~?:,${}#()".contains(c))
        && !text.contains("$(")
}
