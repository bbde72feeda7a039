//! The table of modes: what each does wrong, and the required outcome. `tests/it/mcp/faulty.rs` checks
//! the last column for the manager. In each mode, a healthy server beside the faulty one keeps working,
//! and the manager's memory stays bounded.
//!
//! Every mode has the tool `echo`, which works unless the mode is about that, and most have `fault`,
//! whose call triggers the fault.

/// Name, fault, required outcome.
pub(crate) const MODES: &[(&str, &str, &str)] = &[
    ("healthy", "nothing", "works"),
    // Start.
    (
        "silent-start",
        "reads and never answers",
        "connection error at the start limit",
    ),
    (
        "exits-at-once",
        "exits with code 0 and no output",
        "process error",
    ),
    (
        "dies-with-words",
        "writes the reason to stderr, exits with code 3",
        "process error with the code and the reason",
    ),
    (
        "dies-after-initialize",
        "answers `initialize`, then exits",
        "process error or connection error",
    ),
    (
        "refuses-initialize",
        "answers `initialize` with an error",
        "connection error with its message",
    ),
    (
        "null-initialize",
        "answers `initialize` with null",
        "connection error",
    ),
    (
        "unsupported-version",
        "selects a version from 1999",
        "connection error that names the version",
    ),
    ("initialize-twice", "answers `initialize` twice", "works"),
    (
        "answers-unasked",
        "answers unused ids before it reads",
        "works",
    ),
    (
        "closes-on-discover",
        "exits on any message before `initialize`",
        "restarted, works",
    ),
    (
        "discover-nonsense",
        "answers `server/discover` with a list",
        "works with `initialize`",
    ),
    (
        "slow-everything",
        "waits 300 ms before each answer",
        "works",
    ),
    // Stream.
    ("garbage", "banners and log lines on stdout", "works"),
    (
        "garbage-flood",
        "endless lines that are not the protocol",
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
        "the call fails at once; restarted",
    ),
    (
        "long-line",
        "a line of 40 MB",
        "the call fails, the connection ends; restarted",
    ),
    (
        "endless-line",
        "a line that never ends",
        "the call fails, the connection ends; restarted",
    ),
    (
        "invalid-utf8",
        "lines that are not UTF-8 between the answers",
        "works",
    ),
    (
        "invalid-utf8-answer",
        "an answer that is not UTF-8",
        "the call fails; `echo` still works",
    ),
    ("crlf", "ends lines with CR LF", "works"),
    ("bom", "a byte order mark before its first message", "works"),
    (
        "deep-nesting",
        "an answer nested 100,000 deep",
        "the call fails, the connection ends; restarted",
    ),
    ("trickle", "an answer byte by byte", "works, if slowly"),
    (
        "closes-stdout",
        "closes stdout and keeps running",
        "the call fails at once; restarted",
    ),
    ("stderr-flood", "100 MB on stderr", "works"),
    (
        "stops-reading",
        "stops reading",
        "a call of 4 MB fails at its limit",
    ),
    // Lists.
    (
        "endless-pages",
        "always another page of tools",
        "ready with a bounded list, or a failure",
    ),
    (
        "same-cursor",
        "always the same page",
        "ready with a bounded list, or a failure",
    ),
    (
        "malformed-tools",
        "nine malformed tools among good ones",
        "only the malformed ones are skipped",
    ),
    ("many-tools", "20,000 tools", "bounded, or a failure"),
    ("same-name-twice", "two tools with one name", "one of them"),
    (
        "gigantic-schema",
        "a schema of 3 MB",
        "that tool is skipped or truncated; `echo` works",
    ),
    (
        "recursive-schema",
        "a schema that refers to itself",
        "offered and callable",
    ),
    ("gigantic-description", "a description of 1 MB", "truncated"),
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
    // Unsolicited messages.
    (
        "notification-storm",
        "log messages without a pause",
        "calls still work",
    ),
    (
        "list-changed-storm",
        "`list_changed` 20,000 times",
        "listed a few times only",
    ),
    (
        "malformed-notifications",
        "notifications with wrong fields",
        "works",
    ),
    (
        "description-change",
        "changes a description after the start",
        "recorded; the tool is refused",
    ),
    (
        "tools-vanish",
        "removes its tool after the start",
        "gone after the refresh",
    ),
    ("request-flood", "endless requests", "the connection ends"),
    (
        "sampling-unasked",
        "requests sampling, which was not offered",
        "refused; the call continues",
    ),
    (
        "elicits",
        "asks the user",
        "declined or refused; the call continues",
    ),
    (
        "unknown-request",
        "a request that no revision knows",
        "-32601; the call continues",
    ),
    (
        "progress-for-ever",
        "endless progress",
        "the call ends at its total limit",
    ),
    // Calls.
    (
        "wrong-id",
        "answers another id",
        "the call fails at its limit; `echo` still works",
    ),
    ("string-id", "answers the id as a string", "works"),
    (
        "float-id",
        "answers the id as 1.5",
        "the call fails; `echo` still works",
    ),
    (
        "duplicate-answers",
        "answers everything three times",
        "works",
    ),
    (
        "result-and-error",
        "both a result and an error",
        "the call ends either way; `echo` still works",
    ),
    (
        "null-result",
        "null as a call's result",
        "the call fails; `echo` still works",
    ),
    (
        "no-content",
        "a result without content",
        "the call ends either way; `echo` still works",
    ),
    (
        "malformed-content",
        "content of unknown and malformed kinds",
        "the call ends either way; `echo` still works",
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
        "a truncated error",
    ),
    ("huge-result", "a result of 5 MB", "truncated"),
    (
        "output-schema-violated",
        "structured content that violates its outputSchema",
        "the mismatch is reported",
    ),
    (
        "crash-mid-call",
        "exits during a call",
        "the call fails within a second; restarted",
    ),
    (
        "ignores-cancellation",
        "continues, and answers much later",
        "the call fails at its limit; `echo` still works",
    ),
    // Shutdown.
    (
        "ignores-eof",
        "keeps running after stdin is closed",
        "stopped by a signal; nothing left",
    ),
    (
        "ignores-sigterm",
        "ignores the end of stdin and SIGTERM",
        "killed; nothing left",
    ),
    (
        "leaves-a-child",
        "leaves a child of its group running",
        "the child is killed too",
    ),
    (
        "daemon-holds-stdout",
        "exits; a child holds its stdout open",
        "its exit is noticed; nothing left",
    ),
];
