//! The table: what each mode does wrong, and what has to come of it. `tests/it/mcp/faulty.rs` holds
//! the manager to the last column; beside each of these a healthy server goes on answering, and the
//! manager's memory stays bounded.
//!
//! Every mode has the tool `echo`, which works unless the mode is about that, and most have `fault`,
//! whose call brings the fault about.

/// Name, what it does wrong, what has to come of it.
pub(crate) const MODES: &[(&str, &str, &str)] = &[
    ("healthy", "nothing", "works"),
    // The start.
    (
        "silent-start",
        "reads and never answers",
        "connection error at the start limit",
    ),
    (
        "exits-at-once",
        "exit code 0 without a word",
        "process error",
    ),
    (
        "dies-with-words",
        "writes why to stderr, exit code 3",
        "process error with code and words",
    ),
    (
        "dies-after-initialize",
        "answers `initialize`, then exits",
        "process error or connection error",
    ),
    (
        "refuses-initialize",
        "answers `initialize` with an error",
        "connection error with its words",
    ),
    (
        "null-initialize",
        "answers `initialize` with null",
        "connection error",
    ),
    (
        "unsupported-version",
        "agrees on a version of 1999",
        "connection error that names it",
    ),
    ("initialize-twice", "answers `initialize` twice", "works"),
    (
        "answers-unasked",
        "answers ids that nobody has used, before it reads",
        "works",
    ),
    (
        "closes-on-discover",
        "ends on any message before `initialize`",
        "started again, works",
    ),
    (
        "discover-nonsense",
        "answers `server/discover` with a list",
        "works by `initialize`",
    ),
    (
        "slow-everything",
        "waits 300 ms before each answer",
        "works",
    ),
    // The stream.
    ("garbage", "banners and log lines on stdout", "works"),
    (
        "garbage-flood",
        "lines without end that are not the protocol",
        "the connection ends",
    ),
    (
        "half-a-line",
        "half of an answer, then nothing",
        "connection error at the start limit",
    ),
    (
        "dies-in-a-line",
        "half of an answer, then exits",
        "the call fails at once; started again",
    ),
    (
        "long-line",
        "a line of 40 MB",
        "the call fails, the connection ends; started again",
    ),
    (
        "endless-line",
        "a line that never ends",
        "the call fails, the connection ends; started again",
    ),
    (
        "invalid-utf8",
        "lines that are not UTF-8 between the answers",
        "works",
    ),
    (
        "invalid-utf8-answer",
        "an answer that is not UTF-8",
        "the call fails; `echo` works on",
    ),
    ("crlf", "ends lines with CR LF", "works"),
    ("bom", "a byte order mark before its first message", "works"),
    (
        "deep-nesting",
        "an answer nested 100,000 deep",
        "the call fails, the connection ends; started again",
    ),
    ("trickle", "an answer byte by byte", "works, if slowly"),
    (
        "closes-stdout",
        "closes stdout and lives on",
        "the call fails at once; started again",
    ),
    ("stderr-flood", "100 MB on stderr", "works"),
    (
        "stops-reading",
        "reads no more",
        "a call of 4 MB fails at its limit",
    ),
    // The lists.
    (
        "endless-pages",
        "always another page of tools",
        "ready with a bounded list, or a failure",
    ),
    (
        "same-cursor",
        "always the same page again",
        "ready with a bounded list, or a failure",
    ),
    (
        "malformed-tools",
        "nine malformed tools among good ones",
        "only the malformed are left out",
    ),
    ("many-tools", "20,000 tools", "bounded, or a failure"),
    ("same-name-twice", "two tools of one name", "one of them"),
    (
        "gigantic-schema",
        "a schema of 3 MB",
        "that tool is left out or cut; `echo` works",
    ),
    (
        "recursive-schema",
        "a schema that refers to itself",
        "offered and callable",
    ),
    ("gigantic-description", "a description of 1 MB", "cut"),
    (
        "list-error",
        "answers the list of tools with an error",
        "failure, or ready without tools",
    ),
    (
        "list-null",
        "answers the list of tools with null",
        "failure, or ready without tools",
    ),
    (
        "lies-about-capabilities",
        "declares resources and prompts, and refuses both lists",
        "its tools work",
    ),
    // What nobody asked for.
    (
        "notification-storm",
        "log messages without a pause",
        "calls go on",
    ),
    (
        "list-changed-storm",
        "20,000 times `list_changed`",
        "listed a few times only",
    ),
    (
        "malformed-notifications",
        "notifications with wrong fields",
        "works",
    ),
    (
        "description-change",
        "another description after the start",
        "recorded; the tool is refused",
    ),
    (
        "tools-vanish",
        "takes its tool away after the start",
        "gone after the refresh",
    ),
    (
        "request-flood",
        "requests without end",
        "the connection ends",
    ),
    (
        "sampling-unasked",
        "wants a model call that was not offered",
        "refused; the call goes on",
    ),
    (
        "elicits",
        "asks the person",
        "declined or refused; the call goes on",
    ),
    (
        "unknown-request",
        "a request that no revision knows",
        "-32601; the call goes on",
    ),
    (
        "progress-for-ever",
        "progress without an end",
        "the call ends at its total limit",
    ),
    // The calls.
    (
        "wrong-id",
        "answers another id",
        "the call fails at its limit; `echo` works on",
    ),
    ("string-id", "answers the id as a string", "works"),
    (
        "float-id",
        "answers the id as 1.5",
        "the call fails; `echo` works on",
    ),
    (
        "duplicate-answers",
        "answers everything three times",
        "works",
    ),
    (
        "result-and-error",
        "both a result and an error",
        "the call ends either way; `echo` works on",
    ),
    (
        "null-result",
        "null as a call's result",
        "the call fails; `echo` works on",
    ),
    (
        "no-content",
        "a result without content",
        "the call ends either way; `echo` works on",
    ),
    (
        "malformed-content",
        "content of unknown and malformed kinds",
        "the call ends either way; `echo` works on",
    ),
    (
        "is-error",
        "a result with `isError`",
        "an error with its text",
    ),
    (
        "json-rpc-error",
        "a JSON-RPC error",
        "an error with its code",
    ),
    (
        "huge-error",
        "an error with a message of 1 MB",
        "an error, cut",
    ),
    ("huge-result", "a result of 5 MB", "cut"),
    (
        "output-schema-violated",
        "structured content against its outputSchema",
        "the mismatch is told",
    ),
    (
        "crash-mid-call",
        "exits in a call",
        "the call fails within a second; started again",
    ),
    (
        "ignores-cancellation",
        "goes on, and answers long after",
        "the call fails at its limit; `echo` works on",
    ),
    // The end.
    (
        "ignores-eof",
        "lives on after stdin is closed",
        "ended by a signal; nothing left",
    ),
    (
        "ignores-sigterm",
        "ignores the end of stdin and SIGTERM",
        "killed; nothing left",
    ),
    (
        "leaves-a-child",
        "a child of its group lives on",
        "the child is ended too",
    ),
    (
        "daemon-holds-stdout",
        "exits; a child holds its stdout open",
        "its end is seen; nothing left",
    ),
];
