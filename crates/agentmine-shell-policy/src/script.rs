//! A shell script as the commands in it.
//!
//! `/bin/sh` may be dash or bash, and the parser knows bash. Where dash reads a text differently and
//! runs something else, both readings are followed, or the text is refused. Where it is in doubt, this
//! module finds more commands rather than fewer.

use rable::{Node, NodeKind};

use crate::expand::{Expansion, Mode, name_length};
use crate::parse::{Parser, Unclear};
use crate::value::{Value, Variables, base_name, listed};

/// One simple command, or the redirections of a compound one.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) argv: Vec<Value>,
    /// The files that it writes to or reads from.
    pub(crate) files: Vec<Value>,
    /// The text that it reads. Nothing is known of what another command writes.
    pub(crate) stdin: Value,
    /// The functions whose bodies contain it.
    pub(crate) inside: Vec<String>,
}

/// The commands of a script, those in substitutions included.
pub(crate) fn commands(text: &str, parser: &Parser) -> Result<Vec<Command>, Unclear> {
    let mut readings = vec![parser.parse(text)?];
    // In dash, `&>` ends a command in the background and redirects the next one, and `[[` is a program,
    // so that `&&` and `||` end its command. Where that is no script, dash runs nothing.
    let dash = text.replace("&>", "& >").replace("[[", "[ [");
    // Shells join the lines first, which can make one operator of two.
    let joined = text.replace("\\\n", "");
    for other in [dash, joined].iter().filter(|other| *other != text) {
        readings.extend(parser.parse(other));
    }
    let mut walk = Walk {
        parser,
        variables: Variables::default(),
        found: None,
        functions: Vec::new(),
        substituted: false,
        timed: false,
    };
    for found in [None, Some(Vec::new())] {
        walk.found = found;
        readings.iter().try_for_each(|nodes| walk.nodes(nodes))?;
    }
    Ok(walk.found.unwrap_or_default())
}

/// A walk over a script: one to learn what it assigns, and one to find its commands.
struct Walk<'a> {
    parser: &'a Parser,
    variables: Variables,
    found: Option<Vec<Command>>,
    functions: Vec<String>,
    /// A substitution is open around a node.
    substituted: bool,
    /// The keyword `time` precedes the next command. In dash it is a program with options.
    timed: bool,
}

type Done = Result<(), Unclear>;

impl Walk<'_> {
    fn nodes<'n>(&mut self, nodes: impl IntoIterator<Item = &'n Node>) -> Done {
        nodes.into_iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Done {
        use NodeKind as K;
        let depth = self.functions.len();
        match &node.kind {
            K::Command {
                assignments,
                words,
                redirects,
            } => self.simple(assignments, words, redirects)?,
            K::Redirect { .. } | K::HereDoc { .. } => {
                self.simple(&[], &[], std::slice::from_ref(node))?
            }
            K::Function { name, .. } if name.contains(['$', '`', '\'', '"', '\\']) => {
                return Err(Unclear("a function's name is not plain"));
            }
            K::Function { name, .. } => self.functions.push(name.clone()),
            K::Time { .. } => self.timed = true,
            K::For { var, .. } | K::Select { var, .. } => self.assign(var, Value::unknown()),
            K::ForArith {
                init, cond, incr, ..
            } => {
                for text in [init, cond, incr] {
                    self.text(text, Mode::Document)?;
                }
            }
            K::ArithmeticCommand { raw_content, .. } => {
                self.text(raw_content, Mode::Document)?;
                // dash reads two subshells.
                self.nodes(&self.parser.parse(raw_content).unwrap_or_default())?;
            }
            K::CondTerm { value, .. } => drop(self.text(value, Mode::Document)?),
            K::Word { value, .. } => drop(self.text(value, Mode::Words)?),
            _ => {}
        }
        self.nodes(children(&node.kind))?;
        self.functions.truncate(depth);
        Ok(())
    }

    /// A simple command, or a redirection of a compound one.
    fn simple(&mut self, assignments: &[Node], words: &[Node], redirects: &[Node]) -> Done {
        let timed = std::mem::take(&mut self.timed);
        for node in assignments {
            let text = source(node)?;
            // `IFS= read` holds for that one command.
            let lasts = words.is_empty() || !text.starts_with("IFS=");
            if !lasts || self.assignment(text)?.is_none() {
                self.text(text, Mode::One)?;
            }
        }
        let first = words.first().map(source).transpose()?.unwrap_or_default();
        // The name of a builtin that a variable gives is not learned from.
        let program = match first.contains(['$', '`']) {
            true => Value::unknown(),
            false => self.one(first, Mode::One)?,
        };
        let program = base_name(&program.text);
        let mut argv: Vec<Value> = Vec::new();
        for node in words {
            let text = source(node)?;
            let declares = listed(DECLARING, program);
            match declares
                .then(|| self.assignment(text))
                .transpose()?
                .flatten()
            {
                Some(word) => argv.push(word),
                None => argv.extend(self.text(text, Mode::Words)?),
            }
        }
        if listed(ASSIGNING, program) {
            argv.iter()
                .for_each(|arg| self.assign(&arg.text, Value::unknown()));
        }
        self.variables.lost |= listed("eval . source", program);
        argv.splice(0..0, timed.then(|| Value::known("time")));
        let mut command = Command {
            argv,
            files: Vec::new(),
            stdin: Value::unknown(),
            inside: self.functions.clone(),
        };
        for node in redirects {
            self.redirect(&node.kind, &mut command)?;
        }
        if let Some(found) = &mut self.found {
            found.push(command);
        }
        Ok(())
    }

    fn redirect(&mut self, kind: &NodeKind, command: &mut Command) -> Done {
        match kind {
            NodeKind::HereDoc { content, .. } if content.is_empty() && self.substituted => {
                // Shells disagree about where it is.
                return Err(Unclear("a here-document has no text"));
            }
            NodeKind::HereDoc {
                content, quoted, ..
            } => {
                command.stdin = match quoted {
                    true => Value::known(content),
                    false => self.one(content, Mode::Document)?,
                };
            }
            NodeKind::Redirect { op, target, .. } => {
                let file = self.one(source(target)?, Mode::One)?;
                match op.as_str() {
                    "<<<" => command.stdin = file.clone(),
                    // A script in a file is not examined. What another command writes is no file.
                    "<" | "<>" | "<&" if file.is_known() => command.stdin = Value::known(""),
                    "<" | "<>" | "<&" => command.stdin = Value::unknown(),
                    _ => {}
                }
                command.files.push(file);
            }
            _ => {}
        }
        Ok(())
    }

    /// `NAME=value`, `NAME+=value`, `NAME[…]=value`, `NAME=(…)`: only the first is followed. The word, if
    /// it is one of them.
    fn assignment(&mut self, text: &str) -> Result<Option<Value>, Unclear> {
        let (name, rest) = text.split_at(name_length(text));
        let assigns = rest.starts_with(['=', '[']) || rest.starts_with("+=");
        if name.is_empty() || !assigns {
            return Ok(None);
        }
        let word = self.one(text, Mode::One)?;
        let value = match rest.starts_with('=') && !rest.starts_with("=(") {
            true => word.with(word.text.get(name.len() + 1..).unwrap_or_default()),
            false => Value::unknown(),
        };
        self.assign(name, value);
        Ok(Some(word))
    }

    /// The value of a text that is not split.
    fn one(&mut self, text: &str, mode: Mode) -> Result<Value, Unclear> {
        let values = self.text(text, mode)?;
        Ok(values.into_iter().next().unwrap_or_default())
    }

    /// The values of a text, after a walk over the scripts that it runs.
    fn text(&mut self, text: &str, mode: Mode) -> Result<Vec<Value>, Unclear> {
        let Expansion {
            values,
            scripts,
            assigned,
            ..
        } = Expansion::of(text, mode, &self.variables, self.parser)?;
        for name in assigned {
            self.assign(&name, Value::unknown());
        }
        for script in scripts {
            let around = std::mem::replace(&mut self.substituted, true);
            let nodes = self.parser.parse(&script)?;
            self.nodes(&nodes)?;
            self.substituted = around;
        }
        Ok(values)
    }

    fn assign(&mut self, name: &str, value: Value) {
        if self.found.is_none() {
            self.variables.assign(name, value);
        }
    }
}

/// Builtins whose arguments are assignments.
const DECLARING: &str = "export readonly local declare typeset";
/// Builtins whose arguments are names of variables.
const ASSIGNING: &str = "read printf getopts mapfile readarray unset let";

/// A word as it is written.
fn source(node: &Node) -> Result<&str, Unclear> {
    match &node.kind {
        NodeKind::Word { value, .. } => Ok(value),
        _ => Err(Unclear("a word cannot be followed")),
    }
}

/// A field of the kinds of nodes that have it.
macro_rules! field {
    ($kind:expr, $field:ident: $($variant:ident)*) => {
        match $kind {
            $(NodeKind::$variant { $field, .. } => Some($field),)*
            _ => None,
        }
    };
}

/// The nodes directly in a node that may run something.
fn children(kind: &NodeKind) -> Vec<&Node> {
    let first = [
        field!(kind, condition: If While Until),
        field!(kind, then_body: If),
        field!(kind, word: Case),
        field!(kind, left: CondAnd CondOr BinaryTest),
        field!(kind, right: CondAnd CondOr BinaryTest),
        field!(kind, operand: UnaryTest CondNot),
        field!(kind, inner: CondParen),
        field!(kind, pipeline: Negation Time),
        field!(kind, command: Coproc),
    ];
    let body = field!(kind, body: While Until For Select ForArith Subshell BraceGroup
        ConditionalExpr Function);
    let else_body = field!(kind, else_body: If).and_then(Option::as_ref);
    let words = field!(kind, words: For Select).and_then(Option::as_ref);
    let commands = field!(kind, commands: Pipeline);
    let items = field!(kind, items: List).into_iter().flatten();
    let patterns = field!(kind, patterns: Case).into_iter().flatten();
    let redirects = field!(kind, redirects: If While Until For Select ForArith Case Subshell
        BraceGroup ConditionalExpr ArithmeticCommand);
    let mut nodes: Vec<&Node> = first.into_iter().flatten().map(Box::as_ref).collect();
    nodes.extend(words.into_iter().chain(commands).flatten());
    nodes.extend(items.map(|item| &item.command));
    nodes.extend(patterns.flat_map(|item| item.patterns.iter().chain(&item.body)));
    nodes.extend(body.into_iter().chain(else_body).map(Box::as_ref));
    nodes.extend(redirects.into_iter().flatten());
    nodes
}
