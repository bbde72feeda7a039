//! Faults that a test injects into the forge.

use std::time::Duration;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// This answer, without doing anything.
    Status {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Done as requested, but late.
    Delay(Duration),
    /// Done as requested, and answered late.
    Late(Duration),
    /// Done as requested, late, and answered slowly.
    Slow { late: Duration, bytes_a_second: u32 },
    /// The connection is dropped before anything is done.
    Drop,
    /// It is done, and then the connection is dropped: the answer is lost.
    DropAfter,
    /// It is done, and then this is the answer.
    StatusAfter(u16),
    /// It is done, and the answer lacks this field, in each item if it is a list.
    Without(String),
    /// It is done, and the field has another name in the answer.
    Renamed(String),
}

/// A fault: which requests it affects, and how.
#[derive(Debug, Clone)]
pub struct Fault {
    method: String,
    pattern: String,
    skip: usize,
    times: usize,
    pub(super) kind: Kind,
}

impl Fault {
    /// Affects requests with this method (`*`: any) whose path with query contains `pattern`, in which
    /// `*` matches any text; a `$` at its end is the end. What GraphQL is asked for follows its path. By default it drops
    /// the connection, once.
    #[must_use]
    pub fn on(method: &str, pattern: &str) -> Self {
        Self {
            method: method.to_owned(),
            pattern: pattern.to_owned(),
            skip: 0,
            times: 1,
            kind: Kind::Drop,
        }
    }

    /// Lets the first `count` matching requests pass.
    #[must_use]
    pub fn after(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    /// Affects `count` requests.
    #[must_use]
    pub fn times(mut self, count: usize) -> Self {
        self.times = count;
        self
    }

    /// Answers with a status, without doing anything.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.kind = Kind::Status {
            status,
            headers: Vec::new(),
            body: format!("{{\"message\":\"injected {status}\"}}"),
        };
        self
    }

    /// A header of the answer; after [`Fault::status`].
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Kind::Status { headers, .. } = &mut self.kind {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// The body of the answer; after [`Fault::status`].
    #[must_use]
    pub fn body(mut self, text: &str) -> Self {
        if let Kind::Status { body, .. } = &mut self.kind {
            text.clone_into(body);
        }
        self
    }

    /// Does it at once, and answers late with what was so then.
    #[must_use]
    pub fn answered_late(mut self, by: Duration) -> Self {
        self.kind = Kind::Late(by);
        self
    }

    /// Does it late, and answers.
    #[must_use]
    pub fn delay(mut self, by: Duration) -> Self {
        self.kind = Kind::Delay(by);
        self
    }

    /// Does it late, and answers as over a slow line.
    #[must_use]
    pub fn slow(mut self, late: Duration, bytes_a_second: u32) -> Self {
        self.kind = Kind::Slow {
            late,
            bytes_a_second,
        };
        self
    }

    /// Drops the connection without doing anything.
    #[must_use]
    pub fn dropped(mut self) -> Self {
        self.kind = Kind::Drop;
        self
    }

    /// Does it, then drops the connection: the answer is lost.
    #[must_use]
    pub fn answer_lost(mut self) -> Self {
        self.kind = Kind::DropAfter;
        self
    }

    /// Does it, then answers with a status anyway.
    #[must_use]
    pub fn done_but_status(mut self, status: u16) -> Self {
        self.kind = Kind::StatusAfter(status);
        self
    }

    /// Does it, and answers without a field.
    #[must_use]
    pub fn without(mut self, field: &str) -> Self {
        self.kind = Kind::Without(field.to_owned());
        self
    }

    /// Does it, and answers with another name for a field.
    #[must_use]
    pub fn renamed(mut self, field: &str) -> Self {
        self.kind = Kind::Renamed(field.to_owned());
        self
    }

    fn matches(&self, method: &str, target: &str) -> bool {
        if self.method != "*" && !self.method.eq_ignore_ascii_case(method) {
            return false;
        }
        let (pattern, to_end) = match self.pattern.strip_suffix('$') {
            Some(pattern) => (pattern, true),
            None => (self.pattern.as_str(), false),
        };
        let mut rest = target;
        let found = pattern.split('*').all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        });
        found && (!to_end || rest.is_empty())
    }
}

/// Returns the fault that affects this request, if any, and counts it.
pub(super) fn take(faults: &mut Vec<Fault>, method: &str, target: &str) -> Option<Kind> {
    let at = faults
        .iter()
        .position(|fault| fault.matches(method, target))?;
    let fault = faults.get_mut(at)?;
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times = fault.times.saturating_sub(1);
    let kind = fault.kind.clone();
    if fault.times == 0 {
        faults.remove(at);
    }
    Some(kind)
}
